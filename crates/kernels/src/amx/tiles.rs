//! Eight tiles of 16 rows and 64 bytes. The configuration belongs to a thread: whoever multiplies holds a
//! [`Configured`]. The first on a thread sets the tiles up and the last gives them back, so that a switch of
//! threads need not save them.

use std::arch::asm;
use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Rows of a full tile; each has 64 bytes.
pub const TILE_ROWS: usize = 16;

/// Whether the CPU has bf16 and int8 tiles and the system lets this process use them. Asks once.
pub fn is_permitted() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    // Miri interprets no assembly.
    *ANSWER.get_or_init(|| cfg!(not(miri)) && has_tiles() && request_tile_data())
}

fn has_tiles() -> bool {
    if __cpuid_count(0, 0).eax < 7 {
        return false;
    }
    // Leaf 7, EDX: bit 22 bf16, bit 24 tiles, bit 25 int8. Leaf 1, ECX: bit 27, the system uses XSAVE.
    let wanted = 1 << 22 | 1 << 24 | 1 << 25;
    if __cpuid_count(7, 0).edx & wanted != wanted || __cpuid_count(1, 0).ecx & 1 << 27 == 0 {
        return false;
    }
    // SAFETY: the OSXSAVE bit was seen, so XGETBV exists.
    let enabled = unsafe { xcr0() };
    // Tile configuration and tile data.
    enabled & 0b11 << 17 == 0b11 << 17
}

#[target_feature(enable = "xsave")]
fn xcr0() -> u64 {
    // SAFETY: register 0 exists wherever XGETBV does.
    unsafe { _xgetbv(0) }
}

/// Linux hands out the large tile state only to processes that ask for it.
#[cfg(target_os = "linux")]
fn request_tile_data() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
    const XFEATURE_XTILEDATA: i64 = 18;
    let result: i64;
    // SAFETY: a system call that reads its two register arguments and touches no memory of ours; the
    // clobbered registers are named.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn request_tile_data() -> bool {
    false
}

/// The memory form of a tile configuration.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_per_row: [u16; 16],
    rows: [u8; 16],
}

thread_local! {
    /// How many [`Configured`] this thread holds; the tiles are set up while there is one.
    static HELD: Cell<usize> = const { Cell::new(0) };
    /// Whether a [`Few`] lives on this thread, for which tiles have other sizes.
    static IS_FEW: Cell<bool> = const { Cell::new(false) };
}

/// All eight tiles of this thread, configured to 16 rows of 64 bytes while one of these lives. Several on a thread
/// share the tiles and what is in them: one that is made in the middle of another's product overwrites its sums.
pub struct Configured {
    /// The configuration is the thread's, so this must stay on it.
    on_this_thread: PhantomData<*const ()>,
}

/// Sets up all eight tiles of this thread, each with so many rows and bytes in them.
///
/// # Safety
/// The CPU has tiles and the system permits them; rows are 1 to 16, bytes 4 to 64.
unsafe fn configure(sizes: [(usize, usize); 8]) {
    let mut config =
        Config { palette: 1, start_row: 0, reserved: [0; 14], bytes_per_row: [0; 16], rows: [0; 16] };
    for (tile, (rows, bytes)) in sizes.into_iter().enumerate() {
        config.rows[tile] = rows as u8;
        config.bytes_per_row[tile] = bytes as u16;
    }
    // SAFETY: the caller's promise; the configuration is valid for palette 1.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &config, options(nostack, readonly)) };
}

/// Sixteen rows of 64 bytes.
const WHOLE: (usize, usize) = (TILE_ROWS, 64);

impl Configured {
    /// Configures the tiles of this thread; `None` where the machine has none, and while [`Few`] uses them.
    pub fn new() -> Option<Configured> {
        if !is_permitted() || IS_FEW.get() {
            return None;
        }
        let held = HELD.get();
        HELD.set(held + 1);
        if held == 0 {
            // SAFETY: permitted, as was seen above.
            unsafe { configure([WHOLE; 8]) };
        }
        Some(Configured { on_this_thread: PhantomData })
    }

    /// Zeroes tile `T`.
    pub fn zero<const T: u8>(&self) {
        // SAFETY: `self` proves that the tiles are configured; only a tile register changes, which Rust never
        // uses.
        unsafe { asm!("tilezero tmm{t}", t = const T, options(nostack, nomem, preserves_flags)) };
    }

    /// Loads tile `T` from 16 rows of 64 bytes that lie `stride` bytes apart.
    ///
    /// # Safety
    /// All 16 rows must be readable.
    pub unsafe fn load<const T: u8>(&self, from: *const u8, stride: usize) {
        // SAFETY: the rows are readable (the caller's promise) and the tiles are configured.
        unsafe {
            asm!(
                "tileloadd tmm{t}, [{from} + {stride}*1]",
                t = const T, from = in(reg) from, stride = in(reg) stride,
                options(nostack, readonly, preserves_flags),
            );
        }
    }

    /// Stores tile `T` to 16 rows of 64 bytes that lie `stride` bytes apart.
    ///
    /// # Safety
    /// All 16 rows must be writable.
    pub unsafe fn store<const T: u8>(&self, to: *mut u8, stride: usize) {
        // SAFETY: the rows are writable (the caller's promise) and the tiles are configured.
        unsafe {
            asm!(
                "tilestored [{to} + {stride}*1], tmm{t}",
                t = const T, to = in(reg) to, stride = in(reg) stride,
                options(nostack, preserves_flags),
            );
        }
    }

    /// `C += A * B` in f32. A: 16 rows of 32 bf16. B: 16 rows, row `r` with elements `2r` and `2r + 1` of 16
    /// columns as pairs of bf16. C: 16 rows of 16 f32.
    pub fn multiply_bf16<const C: u8, const A: u8, const B: u8>(&self) {
        // SAFETY: `self` proves that the tiles are configured; only a tile register changes, which Rust never
        // uses.
        unsafe {
            asm!(
                "tdpbf16ps tmm{c}, tmm{a}, tmm{b}",
                c = const C, a = const A, b = const B, options(nostack, nomem, preserves_flags),
            );
        }
    }

    /// `C += A * B` in i32, A unsigned and B signed bytes. B's row `r` has elements `4r..4r + 4` of 16
    /// columns.
    pub fn multiply_u8_i8<const C: u8, const A: u8, const B: u8>(&self) {
        // SAFETY: `self` proves that the tiles are configured; only a tile register changes, which Rust never
        // uses.
        unsafe {
            asm!(
                "tdpbusd tmm{c}, tmm{a}, tmm{b}",
                c = const C, a = const A, b = const B, options(nostack, nomem, preserves_flags),
            );
        }
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        let held = HELD.get() - 1;
        HELD.set(held);
        if held > 0 {
            return;
        }
        // SAFETY: the tiles are configured, and this was the last on its thread that proved so.
        unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
    }
}

/// Tiles for few rows: 0 to 3 have `rows` of 16 sums, 4 and 5 (left operands) `rows` of `depth` bytes, 6 and 7 (right operands) as
/// many bytes of 16 columns, four by four. A product takes time by its rows, so that few take little.
pub struct Few {
    /// The configuration is the thread's, so this must stay on it.
    on_this_thread: PhantomData<*const ()>,
}

impl Few {
    /// Lends tiles of these sizes; `None` where the machine has none, where there are no such tiles, and within another `Few`.
    pub fn with<R>(rows: usize, depth: usize, work: impl FnOnce(&Few) -> R) -> Option<R> {
        /// Gives the tiles back, also when a panic ends the work.
        struct GivesBack;
        impl Drop for GivesBack {
            fn drop(&mut self) {
                IS_FEW.set(false);
                // SAFETY: permitted, as was seen when they were lent.
                unsafe {
                    match HELD.get() {
                        0 => asm!("tilerelease", options(nostack, nomem, preserves_flags)),
                        _ => configure([WHOLE; 8]),
                    }
                }
            }
        }
        let exists = (1..=TILE_ROWS).contains(&rows) && (4..=64).contains(&depth) && depth.is_multiple_of(4);
        if !exists || !is_permitted() || IS_FEW.get() {
            return None;
        }
        let (sums, left, right) = ((rows, 64), (rows, depth), (depth / 4, 64));
        // SAFETY: permitted, and sizes that exist, as was seen above.
        unsafe { configure([sums, sums, sums, sums, left, left, right, right]) };
        IS_FEW.set(true);
        let _gives_back = GivesBack;
        Some(work(&Few { on_this_thread: PhantomData }))
    }

    /// Begins the product of a left operand in signed bytes, whose rows follow each other, and a right one in unsigned ones, by
    /// tiles `C` (0 to 3), `A` (4 or 5) and `B` (6 or 7).
    ///
    /// # Safety
    /// The operands are readable, and the tiles are of these kinds.
    #[inline(always)]
    pub unsafe fn multiply<const C: u8, const A: u8, const B: u8>(
        &self,
        left: *const u8,
        depth: usize,
        right: *const u8,
    ) {
        // SAFETY: the caller's promises; `self` proves that the tiles are configured, and Rust never uses them.
        unsafe {
            asm!(
                "tilezero tmm{c}",
                "tileloadd tmm{b}, [{right} + {line}*1]",
                "tileloadd tmm{a}, [{left} + {depth}*1]",
                "tdpbsud tmm{c}, tmm{a}, tmm{b}",
                a = const A, b = const B, c = const C,
                left = in(reg) left, depth = in(reg) depth, right = in(reg) right, line = in(reg) 64_usize,
                options(nostack, readonly, preserves_flags),
            );
        }
    }

    /// Zeroes tile `T`.
    #[inline(always)]
    pub fn zero<const T: u8>(&self) {
        // SAFETY: `self` proves that the tiles are configured; Rust never uses them.
        unsafe { asm!("tilezero tmm{t}", t = const T, options(nostack, nomem, preserves_flags)) };
    }

    /// Loads tile `T` from rows that lie 64 bytes apart.
    ///
    /// # Safety
    /// As many rows as the tile has are readable.
    #[inline(always)]
    pub unsafe fn load<const T: u8>(&self, from: *const u8) {
        // SAFETY: the caller's promise; the tiles are configured.
        unsafe {
            asm!(
                "tileloadd tmm{t}, [{from} + {line}*1]",
                t = const T, from = in(reg) from, line = in(reg) 64_usize,
                options(nostack, readonly, preserves_flags),
            );
        }
    }

    /// `C += A * B` in f32, of bf16: as [`Configured::multiply_bf16`], by tiles of these kinds, 64 bytes deep.
    #[inline(always)]
    pub fn multiply_bf16<const C: u8, const A: u8, const B: u8>(&self) {
        const { assert!(C < 4 && A >= 4 && A < 6 && B >= 6 && B < 8) };
        // SAFETY: the tiles are of sizes that fit each other; only a tile register changes, which Rust never uses.
        unsafe {
            asm!(
                "tdpbf16ps tmm{c}, tmm{a}, tmm{b}",
                c = const C, a = const A, b = const B, options(nostack, nomem, preserves_flags),
            );
        }
    }

    /// Writes the sums in tile `C` to rows of sixteen i32 or f32: best some time after the product was begun, which takes that
    /// long.
    ///
    /// # Safety
    /// The rows are writable, and the tile is one of sums.
    #[inline(always)]
    pub unsafe fn store<const C: u8>(&self, to: *mut i32) {
        // SAFETY: as above.
        unsafe {
            asm!(
                "tilestored [{to} + {line}*1], tmm{c}",
                c = const C, to = in(reg) to, line = in(reg) 64_usize, options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::print_stdout)] // what is not run is said
    fn a_product_of_bytes_is_exact() {
        let Some(tiles) = Configured::new() else {
            println!("not run: this machine has no permitted tiles");
            return;
        };
        check_product(&tiles);
    }

    #[test]
    #[allow(clippy::print_stdout)] // what is not run is said
    fn tiles_stay_configured_until_the_last_of_a_thread_is_dropped() {
        let (Some(first), Some(second)) = (Configured::new(), Configured::new()) else {
            println!("not run: this machine has no permitted tiles");
            return;
        };
        drop(first);
        check_product(&second);
        let third = Configured::new().unwrap();
        drop(second);
        check_product(&third);
        drop(third);
        check_product(&Configured::new().unwrap());
    }

    #[test]
    #[allow(clippy::print_stdout)] // what is not run is said
    fn few_rows_are_multiplied_by_tiles_of_their_size() {
        let a: Vec<i8> = (0..16 * 64).map(|i| (i * 11 % 253) as u8 as i8).collect();
        let b: Vec<u8> = (0..1024).map(|i| (i * 7 % 251) as u8).collect();
        for (rows, depth) in [(1, 4), (8, 16), (8, 32), (12, 32), (16, 64)] {
            let mut c = vec![-1i32; 16 * 17];
            let ran = Few::with(rows, depth, |tiles| {
                assert!(Configured::new().is_none(), "the tiles have other sizes");
                assert!(Few::with(16, 64, |_| ()).is_none());
                // SAFETY: each buffer has as many rows and bytes as the tiles.
                unsafe {
                    tiles.multiply::<3, 5, 6>(a.as_ptr().cast(), depth, b.as_ptr());
                    tiles.store::<3>(c.as_mut_ptr());
                }
            });
            if ran.is_none() {
                println!("not run: this machine has no permitted tiles");
                return;
            }
            for (i, &got) in c.iter().enumerate() {
                let (m, n) = (i / 16, i % 16);
                let element =
                    |k: usize| i32::from(a[m * depth + k]) * i32::from(b[k / 4 * 64 + n * 4 + k % 4]);
                let want = if m < rows { (0..depth).map(element).sum() } else { -1 };
                assert_eq!(got, want, "{rows} rows of {depth}: {m}, {n}");
            }
        }
    }

    #[test]
    #[allow(clippy::print_stdout)] // what is not run is said
    fn tiles_of_other_sizes_leave_whole_ones_as_they_were() {
        let Some(whole) = Configured::new() else {
            println!("not run: this machine has no permitted tiles");
            return;
        };
        assert!(Few::with(8, 32, |_| ()).is_some());
        check_product(&whole);
        let panics = std::panic::catch_unwind(|| Few::with(8, 32, |_| panic!("as the test wants it")));
        assert!(panics.is_err());
        check_product(&whole);
        assert!(
            [(0, 32), (17, 32), (8, 0), (8, 6), (8, 68)]
                .iter()
                .all(|&(m, k)| Few::with(m, k, |_| ()).is_none())
        );
    }

    fn check_product(tiles: &Configured) {
        let a: Vec<u8> = (0..1024).map(|i| (i * 7 % 251) as u8).collect();
        let b: Vec<i8> = (0..1024).map(|i| (i * 11 % 253) as u8 as i8).collect();
        let mut c = vec![0i32; 256];
        // SAFETY: each buffer holds 16 rows of 64 bytes.
        unsafe {
            tiles.zero::<0>();
            tiles.load::<1>(a.as_ptr(), 64);
            tiles.load::<2>(b.as_ptr().cast(), 64);
            tiles.multiply_u8_i8::<0, 1, 2>();
            tiles.store::<0>(c.as_mut_ptr().cast(), 64);
        }
        for (i, &got) in c.iter().enumerate() {
            let (m, n) = (i / 16, i % 16);
            let element = |k: usize| i32::from(a[m * 64 + k]) * i32::from(b[k / 4 * 64 + n * 4 + k % 4]);
            assert_eq!(got, (0..64).map(element).sum::<i32>(), "{m}, {n}");
        }
    }
}
