// The C library as functions of JavaScript: `globalThis.__pteron`, of the shape that `src/native.ts` has.
#pragma once

#include <ReactCommon/CallInvoker.h>
#include <jsi/jsi.h>
#include <memory>

namespace pteron {

/// Puts the functions into a runtime. What runs when it ends is cancelled and waited for.
void install(facebook::jsi::Runtime& runtime, std::shared_ptr<facebook::react::CallInvoker> invoker);

} // namespace pteron
