//! Which vector instructions a kernel uses. A path is named, can be asked for, and is an error where the CPU
//! lacks it.

use std::fmt;

/// One family of vector instructions. Declared from the plainest to the widest of each architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// Plain Rust, on every machine.
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2,
    /// [`Path::Avx2`] with the int8 dot product in 256 bits.
    AvxVnni,
    /// AVX-512 F, BW, DQ and VL, as Skylake servers have them: no int8 dot product.
    Avx512Bw,
    /// [`Path::Avx512Bw`] with VNNI; VBMI and BF16 are used where [`Path::has_vbmi`] and [`Path::has_bf16`]
    /// say so.
    Avx512,
    /// [`Path::Avx512`] with BF16 and VBMI, and matrix tiles of bf16 and int8.
    Amx,
    /// Advanced SIMD of every AArch64.
    Neon,
    /// [`Path::Neon`] with the int8 dot product.
    NeonDotprod,
    /// [`Path::NeonDotprod`] with int8 matrix multiplication.
    NeonI8mm,
}

/// Why a path cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathError {
    /// No path has this name.
    Unknown(String),
    /// This machine cannot run the path.
    Missing(Path),
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathError::Unknown(name) => {
                write!(f, "{name:?} is not a CPU path; known are {}", list(&Path::ALL))
            }
            PathError::Missing(path) => {
                write!(f, "this CPU lacks what {path} needs; it can run {}", list(&Path::available()))
            }
        }
    }
}

impl std::error::Error for PathError {}

fn list(paths: &[Path]) -> String {
    paths.iter().map(|path| path.name()).collect::<Vec<_>>().join(", ")
}

impl Path {
    /// Every path of every architecture.
    pub const ALL: [Path; 9] = [
        Path::Scalar,
        Path::Avx2,
        Path::AvxVnni,
        Path::Avx512Bw,
        Path::Avx512,
        Path::Amx,
        Path::Neon,
        Path::NeonDotprod,
        Path::NeonI8mm,
    ];

    /// The name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Path::Scalar => "scalar",
            Path::Avx2 => "avx2",
            Path::AvxVnni => "avxvnni",
            Path::Avx512Bw => "avx512bw",
            Path::Avx512 => "avx512",
            Path::Amx => "amx",
            Path::Neon => "neon",
            Path::NeonDotprod => "neon-dotprod",
            Path::NeonI8mm => "neon-i8mm",
        }
    }

    /// The path of that name, whether or not this machine can run it.
    pub fn parse(name: &str) -> Result<Path, PathError> {
        let found = Path::ALL.into_iter().find(|path| path.name() == name);
        found.ok_or_else(|| PathError::Unknown(name.to_owned()))
    }

    /// Whether this machine can run the path. The first question about AMX asks the kernel for its use.
    pub fn is_available(self) -> bool {
        match self {
            Path::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 | Path::AvxVnni | Path::Avx512Bw | Path::Avx512 | Path::Amx => x86::has(self),
            #[cfg(target_arch = "aarch64")]
            Path::Neon => true,
            #[cfg(target_arch = "aarch64")]
            Path::NeonDotprod => std::arch::is_aarch64_feature_detected!("dotprod"),
            #[cfg(target_arch = "aarch64")]
            Path::NeonI8mm => {
                std::arch::is_aarch64_feature_detected!("dotprod")
                    && std::arch::is_aarch64_feature_detected!("i8mm")
            }
            _ => false,
        }
    }

    /// The path itself where this machine can run it.
    pub fn check(self) -> Result<Path, PathError> {
        if self.is_available() { Ok(self) } else { Err(PathError::Missing(self)) }
    }

    /// The paths of this machine, plainest first.
    pub fn available() -> Vec<Path> {
        Path::ALL.into_iter().filter(|path| path.is_available()).collect()
    }

    /// The widest path of this machine.
    pub fn best() -> Path {
        let best = Path::ALL.into_iter().rev().find(|path| path.is_available());
        best.unwrap_or(Path::Scalar)
    }

    /// Whether byte permutations across a whole AVX-512 register may be used on this path.
    pub fn has_vbmi(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self == Path::Amx || self == Path::Avx512 && is_x86_feature_detected!("avx512vbmi");
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// Whether AVX-512's bf16 dot product may be used on this path.
    pub fn has_bf16(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self == Path::Amx || self == Path::Avx512 && is_x86_feature_detected!("avx512bf16");
        #[cfg(not(target_arch = "x86_64"))]
        false
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Path;

    pub(super) fn has(path: Path) -> bool {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let avx512bw = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        let avx512 = avx512bw && is_x86_feature_detected!("avx512vnni");
        match path {
            Path::Avx2 => avx2,
            Path::AvxVnni => avx2 && is_x86_feature_detected!("avxvnni"),
            Path::Avx512Bw => avx512bw,
            Path::Avx512 => avx512,
            Path::Amx => {
                avx512
                    && is_x86_feature_detected!("avx512bf16")
                    && is_x86_feature_detected!("avx512vbmi")
                    && crate::amx::is_permitted()
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_others_are_refused() {
        for path in Path::ALL {
            assert_eq!(Path::parse(path.name()), Ok(path));
        }
        let message = Path::parse("sse9").unwrap_err().to_string();
        assert!(message.contains("sse9") && message.contains("avx512"), "{message}");
    }

    #[test]
    fn the_best_path_is_available_and_the_rest_say_what_there_is() {
        assert!(Path::available().contains(&Path::best()));
        for path in Path::ALL {
            match path.check() {
                Ok(found) => assert_eq!(found, path),
                Err(error) => assert!(error.to_string().contains("scalar"), "{error}"),
            }
        }
    }
}
