//! The MLX backend in this binary: there with the feature `mlx`, and then only if MLX can be opened.

use pteron_runtime::registry::Registry;

/// The backend's name on the command line.
const NAME: &str = "mlx";

/// Adds MLX to the backends where the user names it, or where it has a GPU; an error says why what was asked for is
/// not there.
#[cfg(not(feature = "mlx"))]
pub(crate) fn add(_registry: &mut Registry, named: Option<&str>) -> Result<(), String> {
    match named {
        Some(NAME) => {
            Err("this binary was built without MLX; the README says how to build it with".to_owned())
        }
        _ => Ok(()),
    }
}

/// Adds MLX to the backends where the user names it, or where it has a GPU; an error says why what was asked for is
/// not there.
#[cfg(feature = "mlx")]
pub(crate) fn add(registry: &mut Registry, named: Option<&str>) -> Result<(), String> {
    if named.is_some_and(|named| named != NAME) {
        return Ok(());
    }
    match pteron_mlx::MlxBackend::open(&options()?) {
        Ok(backend) => {
            if named.is_some() || backend.has_gpu() {
                registry.add(std::sync::Arc::new(backend));
            }
            Ok(())
        }
        Err(error) if named.is_some() => Err(error.to_string()),
        Err(error) => {
            tracing::info!(%error, "MLX is not used");
            Ok(())
        }
    }
}

/// PTERON_MLX_SHIM names the shim, PTERON_MLX_COMPILE says when graphs are compiled.
#[cfg(feature = "mlx")]
fn options() -> Result<pteron_mlx::MlxOptions, String> {
    use pteron_mlx::Compile;
    let shim = std::env::var_os("PTERON_MLX_SHIM").filter(|path| !path.is_empty()).map(Into::into);
    let compile = match std::env::var("PTERON_MLX_COMPILE").as_deref() {
        Err(_) | Ok("" | "repeated") => Compile::Repeated,
        Ok("never") => Compile::Never,
        Ok("always") => Compile::Always,
        Ok(other) => {
            return Err(format!("PTERON_MLX_COMPILE is `{other}`; it can be never, repeated or always"));
        }
    };
    Ok(pteron_mlx::MlxOptions { shim, compile })
}
