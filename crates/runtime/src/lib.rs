//! Running programs: a [`Program`] is read once and shared, a [`Session`] owns state and runs its methods on a
//! [`Backend`](backend::Backend).
//!
//! Files come in through `pteron_format`, graphs through `pteron_ir`; host tensors go in and out of
//! [`Session::run`]. Nothing here prints, reads the environment or knows of any one model. There is no global
//! state: sessions of one program share nothing that is written.

pub mod backend;
pub mod cache;
mod error;
mod execute;
mod fallback;
mod flat;
mod memory;
mod portable;
mod program;
pub mod reference;
pub mod registry;
mod session;
mod together;
mod value;
mod verified;
mod weights;

pub use backend::{BufferId, LoadMode, Placement, Precision, RunControl, Scope};
pub use cache::{CacheLayer, CacheSpec};
pub use error::{Error, NodeError, Result, UnsupportedOp};
pub use fallback::{Pieces, WithFallback};
pub use flat::Span;
pub use portable::{PortableError, knows_operator};
pub use program::{
    Argument, ArgumentKind, Bound, BufferInfo, DataFile, DelegateInfo, Fallback, MethodInfo, Options, Program,
};
pub use reference::kernels::KernelError;
pub use session::{Pending, Session, SessionOptions, SessionSnapshot};
pub use together::Lane;
pub use value::{DeviceTensor, Value};
pub use verified::{VerifiedGraphs, VerifiedProgram};
pub use weights::{Multiple, WeightTotals, Weights};
