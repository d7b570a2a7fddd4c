/** Installs the native side: its functions are then `globalThis.__pteron`. */

import { TurboModuleRegistry, type TurboModule } from "react-native";

export interface Spec extends TurboModule {
  install(): boolean;
}

export default TurboModuleRegistry.get<Spec>("Pteron");
