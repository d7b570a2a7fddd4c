//! What can go wrong between this crate and MLX, before it gets a place in a program.

use pteron_runtime::Error;
use pteron_tensor::TensorError;

/// Why MLX could not be had, or would not compute.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say it
pub enum MlxError {
    #[error(
        "the MLX backend is not there: no shim was built; build with the feature `mlx` and MLX_PREFIX set to what \
         `cargo xtask mlx-setup` prints"
    )]
    NoShim,
    #[error(
        "the MLX backend is not there: {0}; `cargo xtask mlx-setup` installs the MLX that it was built with"
    )]
    Open(String),
    #[error("the shim was built for another version of this program: its border is {found}, not {wanted}")]
    Abi { found: u32, wanted: u32 },
    #[error("the shim is of another build: {0}")]
    Call(String),
    #[error(
        "MLX {found} is installed, the backend is made for {wanted}; `cargo xtask mlx-setup` installs that one"
    )]
    Version { found: String, wanted: &'static str },
    #[error("MLX: {0}")]
    Refused(String),
    #[error("what was handed over was not computed: {0}")]
    Lost(String),
    #[error("there is no memory for a handle")]
    NoMemory,
    #[error("MLX has no tensors as large as {0:?}")]
    Size(Vec<usize>),
    #[error("MLX gives a dtype that programs do not have")]
    DType,
    #[error("text with a zero in it")]
    Text,
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl From<MlxError> for Error {
    fn from(error: MlxError) -> Error {
        Error::Invalid(error.to_string())
    }
}

/// A refusal of our own.
pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T, MlxError> {
    Err(MlxError::Invalid(message.into()))
}
