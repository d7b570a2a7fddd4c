//! `pteron rm`: models off this machine.

use crate::failure::{Answer, Failure};
use crate::home;
use crate::output::{Output, size};
use pteron::parts::FORMAT;
use pteron_registry::Error;

/// Remove fetched models, with all that was converted from them
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  pteron rm gemma3-270m
  pteron rm --unused         what `pteron list` shows as no longer used
  pteron rm --converted      every converted program; they are made anew when they are needed")]
pub(crate) struct Arguments {
    /// Models, by name
    #[arg(required_unless_present_any = ["converted", "unused"])]
    names: Vec<String>,
    /// Remove every converted program, also those of files outside the store
    #[arg(long)]
    converted: bool,
    /// Remove what is no longer used: conversions of files that changed or are gone or of other versions, and what is left
    /// of work that was broken off
    #[arg(long)]
    unused: bool,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<Answer, Failure> {
    let home = home::open()?;
    for name in &arguments.names {
        let known = home.registry.model(name);
        let own = known.as_ref().map_or(name.as_str(), |model| &model.name);
        let removed = match (home.store.remove(own), known) {
            // A model that is here may have no name any more; one that is neither is a slip of the finger.
            (Err(Error::NotInstalled { .. }), Err(unknown)) => return Err(unknown.into()),
            (removed, _) => removed?,
        };
        let made = match removed.converted {
            0 => String::new(),
            bytes => format!(" and {} that were converted from it", size(bytes)),
        };
        out.line(format!("{name}: removed {}{made}", size(removed.fetched)))?;
    }
    if arguments.converted {
        let bytes = home.store.remove_all_conversions()?;
        out.line(format!("converted programs: removed {}", size(bytes)))?;
    }
    if arguments.unused {
        let bytes = home.store.remove_unused(FORMAT)?;
        out.line(format!("no longer used: removed {}", size(bytes)))?;
    }
    Ok(Answer::Yes)
}
