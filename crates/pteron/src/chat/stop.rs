//! Ending an answer from outside.

use crate::progress::Cancel;

/// Stops the answer that a chat is giving, from any thread; what was said until then stays in the conversation. Where no
/// answer is being given, nothing happens.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = pteron::tiny::talking(folder.path())?;
/// # let model = pteron::Model::open(path.as_path(), Default::default())?;
/// # let forever = pteron::GenerateOptions::default().ignore_end(true);
/// # let options = pteron::ChatOptions::default().answering(forever);
/// let mut chat = model.chat(options)?;
/// let stopper = chat.stopper();
/// let answer = chat.send("Count to a hundred.", |_: &str| stopper.stop())?;
/// assert_eq!(answer.finish_reason, pteron::FinishReason::Cancelled);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stopper(pub(super) Cancel);

impl Stopper {
    /// Stops the answer.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = pteron::tiny::talking(folder.path())?;
    /// # let model = pteron::Model::open(path.as_path(), Default::default())?;
    /// let chat = model.chat(Default::default())?;
    /// chat.stopper().stop();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stop(&self) {
        self.0.cancel();
    }
}
