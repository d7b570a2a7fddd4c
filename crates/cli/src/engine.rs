//! Which backend runs a program, and how: the same options for every command that runs one.

use crate::failure::Failure;
use clap::ValueEnum;
use pteron_cpu::{Cpu, Path, RunMemory};
use pteron_format::Limits;
use pteron_runtime::registry::backend_name;
use pteron_runtime::{LoadMode, Options, Placement, Precision};
use std::sync::Arc;

/// The environment variable that names the vector path where `--cpu` does not.
const CPU_VARIABLE: &str = "PTERON_CPU";

/// Files beyond this stay mapped unless the user says otherwise: the copy of larger ones keeps people waiting for the
/// first token, which a few per cent at the tokens behind it do not make up for.
const COPIED_UP_TO: u64 = 4 << 30;

/// Options of every command that runs programs.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Engine {
    /// Backend to run on, with the number of a device where it has several: mlx, mlx:1 [default: the first that is there]
    #[arg(long, value_name = "NAME[:NUMBER]")]
    backend: Option<String>,
    /// Vector path of the cpu backend: amx, avx512, avxvnni, avx2, neon, scalar, ... [default: the best that this
    /// machine has, or PTERON_CPU]
    #[arg(long, value_name = "PATH")]
    cpu: Option<String>,
    /// Threads of the cpu backend [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Memory of the cpu backend's runs: one region that is planned (planned), or, to look for faults in plans and kernels,
    /// an allocation for every value (separate), which is slow and gives the same numbers
    #[arg(
        long,
        value_enum,
        value_name = "KIND",
        default_value = "planned",
        hide_possible_values = true,
        hide_short_help = true
    )]
    memory: Kind,
    /// `exact` rounds activations to no type narrower than the program's; `fast` may go down to 8 bits
    #[arg(long, value_enum)]
    precision: Option<Rounding>,
    /// Give each of several sessions that run together what it would give alone, to the last bit: answers then never
    /// change with the load; many sessions at once are slower so
    #[arg(long, hide_short_help = true)]
    batch_invariant: bool,
    /// Where weights live: in the mapped file (map), there but locked (lock), or in memory in large pages (copy), which
    /// is fastest once it is made; auto copies files of up to 4 GiB that fit into the free memory twice, and maps others
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto", hide_possible_values = true)]
    load: Place,
    /// What a program may take: all that the machine has, for a model of yours (own), or little, so that a file of unknown
    /// origin can do no harm (untrusted: 4 GiB of caches, 4 GiB in a run)
    #[arg(long, value_enum, value_name = "PROFILE", default_value = "own", hide_possible_values = true)]
    limits: Profile,
}

/// `--precision`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Rounding {
    Exact,
    Fast,
}

/// `--memory`.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Kind {
    #[default]
    Planned,
    Separate,
}

/// `--load`.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Place {
    #[default]
    Auto,
    Map,
    #[value(alias = "mlock")]
    Lock,
    Copy,
}

/// `--limits`.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Profile {
    #[default]
    Own,
    Untrusted,
}

impl Engine {
    /// What files and runs are held to.
    pub(crate) fn limits(&self) -> Limits {
        match self.limits {
            Profile::Untrusted => Limits::untrusted(),
            Profile::Own => {
                let own = Limits::own();
                // Beyond the memory there is, the system would end the process without a word.
                let all = crate::doctor::all_memory().unwrap_or(own.live_bytes);
                Limits { live_bytes: own.live_bytes.min(all).max(Limits::untrusted().live_bytes), ..own }
            }
        }
    }

    /// How a program is loaded; `precision` is taken where the user names none.
    pub(crate) fn options(&self, precision: Precision) -> Result<Options, Failure> {
        let usage = |error: &dyn std::fmt::Display| Failure::usage(error.to_string());
        let mut options =
            Options { backend: self.backend.clone(), limits: self.limits(), ..Options::default() };
        options.registry.add(Arc::new(self.cpu().map_err(|error| usage(&error))?));
        crate::mlx::add(&mut options.registry, self.backend.as_deref().map(backend_name))
            .map_err(|error| usage(&error))?;
        options.precision = match self.precision {
            Some(Rounding::Exact) => Precision::Exact,
            Some(Rounding::Fast) => Precision::Fast,
            None => precision,
        };
        options.batch_invariant = self.batch_invariant;
        options.placement = match self.load {
            Place::Auto => {
                Placement::CopyUpTo(COPIED_UP_TO.min(crate::doctor::free_memory().unwrap_or(0) / 2))
            }
            Place::Map => Placement::Fixed(LoadMode::Map),
            Place::Lock => Placement::Fixed(LoadMode::Lock),
            Place::Copy => Placement::Fixed(LoadMode::Copy),
        };
        let target = options.registry.resolve(options.backend.as_deref()).map_err(|error| usage(&error))?;
        tracing::info!(backend = target.name(), device = target.device.name, precision = ?options.precision, placement = ?options.placement);
        Ok(options)
    }

    /// Threads that the cpu backend has.
    pub(crate) fn threads(&self) -> usize {
        self.threads.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from)
    }

    fn cpu(&self) -> Result<Cpu, pteron_cpu::PathError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = self.threads();
        if threads > cores {
            tracing::warn!(threads, cores, "more threads than cores: they will wait for each other");
        }
        let named =
            self.cpu.clone().or_else(|| std::env::var(CPU_VARIABLE).ok().filter(|name| !name.is_empty()));
        let path = named.map(|name| Path::parse(&name)).transpose()?;
        let memory = match self.memory {
            Kind::Planned => RunMemory::Planned,
            Kind::Separate => RunMemory::Separate,
        };
        Ok(Cpu::new(threads, path)?.with_memory(memory))
    }
}
