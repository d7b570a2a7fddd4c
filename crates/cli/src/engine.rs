//! Which backend runs a program, and how: the same options for every command that runs one.

use crate::failure::Failure;
use clap::ValueEnum;
use pteron::parts;
use pteron::parts::mlx::MlxSettings;
use pteron_format::Limits;
use pteron_runtime::{LoadMode, Options, Placement, Precision};

/// The environment variable that names the vector path where `--cpu` does not.
const CPU_VARIABLE: &str = "PTERON_CPU";

/// Options of every command that runs programs.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Engine {
    /// Whether the command runs many sessions at once.
    #[arg(skip)]
    pub(crate) many_sessions: bool,
    /// Backend to run on, with the number of a device where it has several: cpu, vulkan, mlx:1 [default: a GPU that is known
    /// to be faster, where it runs all of the model, else cpu; `pteron doctor` tells]
    #[arg(long, value_name = "NAME[:NUMBER]")]
    backend: Option<String>,
    /// Vector path of the cpu backend: amx, avx512, avx512bw, avxvnni, avx2, neon, scalar, ... [default: the best that this
    /// machine has, or PTERON_CPU]
    #[arg(long, value_name = "PATH")]
    cpu: Option<String>,
    /// Threads of the cpu backend [default: the number of cores; hyper-threads of one core count once]
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
    /// Where weights live: in the mapped file (map), there but locked (lock), in memory in large pages (copy), or there in
    /// the order that many rows at once are read in (arrange: short prompts and many sessions); auto copies files of up to
    /// 4 GiB that fit into the free memory twice, arranges them for many sessions, and maps others
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
    Arrange,
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
        self.chosen(MlxSettings::default()).limits()
    }

    /// How a program is loaded; `precision` is taken where the user names none.
    pub(crate) fn options(&self, precision: Precision) -> Result<Options, Failure> {
        let usage = |error: pteron::Error| Failure::usage(error.to_string());
        self.for_library()?.options(precision).map_err(usage)
    }

    /// Threads that the cpu backend has.
    pub(crate) fn threads(&self) -> usize {
        self.chosen(MlxSettings::default()).threads()
    }

    /// The same choices as the library takes them, with those of the environment.
    pub(crate) fn for_library(&self) -> Result<parts::Engine, Failure> {
        Ok(self.chosen(crate::mlx::settings().map_err(Failure::usage)?))
    }

    fn chosen(&self, mlx: MlxSettings) -> parts::Engine {
        let named = || std::env::var(CPU_VARIABLE).ok().filter(|name| !name.is_empty());
        parts::Engine {
            backend: self.backend.clone(),
            cpu: self.cpu.clone().or_else(named),
            threads: self.threads.map(usize::from),
            separate_memory: matches!(self.memory, Kind::Separate),
            precision: self.precision.map(|precision| match precision {
                Rounding::Exact => Precision::Exact,
                Rounding::Fast => Precision::Fast,
            }),
            batch_invariant: self.batch_invariant,
            placement: match self.load {
                Place::Auto => None,
                Place::Map => Some(Placement::Fixed(LoadMode::Map)),
                Place::Lock => Some(Placement::Fixed(LoadMode::Lock)),
                Place::Arrange => Some(Placement::Fixed(LoadMode::Arrange)),
                Place::Copy => Some(Placement::Fixed(LoadMode::Copy)),
            },
            many_sessions: self.many_sessions,
            untrusted: matches!(self.limits, Profile::Untrusted),
            mlx,
            kept_kernels: crate::home::kept_kernels(),
        }
    }
}
