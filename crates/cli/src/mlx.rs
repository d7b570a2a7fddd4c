//! What the environment says of the MLX backend.

use pteron::parts::mlx::{MlxCompile, MlxSettings};

/// PTERON_MLX_SHIM names the shim, PTERON_MLX_COMPILE says when graphs are compiled.
pub(crate) fn settings() -> Result<MlxSettings, String> {
    let shim = std::env::var_os("PTERON_MLX_SHIM").filter(|path| !path.is_empty()).map(Into::into);
    let compile = match std::env::var("PTERON_MLX_COMPILE").as_deref() {
        Err(_) | Ok("" | "repeated") => MlxCompile::Repeated,
        Ok("never") => MlxCompile::Never,
        Ok("always") => MlxCompile::Always,
        Ok(other) => {
            return Err(format!("PTERON_MLX_COMPILE is `{other}`; it can be never, repeated or always"));
        }
    };
    Ok(MlxSettings { shim, compile })
}
