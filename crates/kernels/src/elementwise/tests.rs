//! Chains against the plain formulas of `std`, on every path.

use super::*;
use crate::pool::Pool;
use crate::trial::{Random, dense, on_every_path, sized};
use crate::view::{View, ViewMut};
use half::{bf16, f16};
use pteron_tensor::Scalar;

fn run(chain: &Chain, sizes: &[usize], inputs: &[(&[u8], &[isize])]) -> Vec<u8> {
    let count: usize = sizes.iter().product();
    let mut out = vec![0u64; count.max(1)];
    let out = &mut bytemuck::cast_slice_mut(&mut out)[..count * chain.output().size()];
    let views: Vec<View<'_>> = inputs
        .iter()
        .zip(chain.inputs())
        .map(|((bytes, strides), &dtype)| View::new(bytes, dtype, 0, sizes, strides).unwrap())
        .collect();
    let strides = dense(sizes);
    chain.run(&Pool::new(2), &mut ViewMut::new(out, chain.output(), 0, sizes, &strides).unwrap(), &views);
    out.to_vec()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn i32s(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn unary_f32(op: UnaryOp, x: &[f32], path: Path) -> Vec<f32> {
    let chain = Chain::unary(op, DType::F32, DType::F32, path).unwrap();
    floats(&run(&chain, &[x.len()], &[(bytemuck::cast_slice(x), &[1])]))
}

/// Numbers of every size and sign, and the special ones.
fn samples() -> Vec<f32> {
    let mut random = Random::new(1);
    let mut x: Vec<f32> = (0..sized(4000, 60)).map(|_| f32::from_bits(random.next() as u32)).collect();
    for scale in [0.1, 1.0, 3.0, 10.0, 90.0, 1e4] {
        x.extend(random.floats(sized(3000, 15)).iter().map(|x| x * scale));
    }
    x.extend([0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE, 1e-45]);
    x.extend([0.5, -0.5, 1.5, 2.5, -2.5, 88.7, -87.4, -103.0, 104.0, f32::MAX, f32::MIN, 1e8, 1.1e8, -3e30]);
    x
}

/// Largest distance in units in the last place, of values that are neither NaN nor below `tiny` in both.
fn check_ulps(
    name: &str,
    path: Path,
    x: &[f32],
    got: &[f32],
    want: impl Fn(f64) -> f64,
    ulps: f64,
    tiny: f64,
) {
    for (&x, &got) in x.iter().zip(got) {
        let exact = want(x.into());
        let want = exact as f32;
        if got == want || (got.is_nan() && want.is_nan()) {
            continue;
        }
        let ulp = f64::from(f32::from_bits(want.abs().to_bits().max(0x80_0000)) * f32::EPSILON).abs();
        let distance = (f64::from(got) - exact).abs();
        assert!(distance <= ulps * ulp + tiny, "{name} on {path}: of {x:e} is {got:e}, not {want:e}");
    }
}

fn erf(x: f64) -> f64 {
    // The series of positive terms; nothing cancels.
    if x.abs() > 6.0 || x.is_nan() {
        return if x.is_nan() { x } else { 1f64.copysign(x) };
    }
    let (mut sum, mut term, mut n) = (x, x, 1.0);
    while term.abs() > sum.abs() * 1e-17 {
        n += 2.0;
        term *= 2.0 * x * x / n;
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// `f64::asinh` of the standard library cancels near 0.
fn asinh(x: f64) -> f64 {
    if x.is_infinite() {
        return x;
    }
    (x.abs() + x * x / (1.0 + (1.0 + x * x).sqrt())).ln_1p().copysign(x)
}

#[test]
fn functions_are_right_to_the_stated_units() {
    use UnaryOp as Op;
    type Row = (Op, fn(f64) -> f64, f64, f64);
    let gelu: fn(f64) -> f64 = |x| 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2));
    let gelu_tanh: fn(f64) -> f64 =
        |x| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh());
    let rows: &[Row] = &[
        (Op::Abs, f64::abs, 0.0, 0.0),
        (Op::Neg, |x| -x, 0.0, 0.0),
        (Op::Square, |x| x * x, 0.5, 0.0),
        (Op::Floor, f64::floor, 0.0, 0.0),
        (Op::Ceil, f64::ceil, 0.0, 0.0),
        (Op::Trunc, f64::trunc, 0.0, 0.0),
        (Op::Round, f64::round_ties_even, 0.0, 0.0),
        (Op::Sqrt, f64::sqrt, 0.5, 0.0),
        (Op::Reciprocal, f64::recip, 0.5, 0.0),
        (Op::Rsqrt, |x| 1.0 / x.sqrt(), 0.51, 0.0),
        (
            Op::Sign,
            |x| {
                if x > 0.0 {
                    1.0
                } else if x < 0.0 {
                    -1.0
                } else {
                    0.0
                }
            },
            0.0,
            0.0,
        ),
        (Op::Exp, f64::exp, 2.0, 1e-44),
        (Op::Sigmoid, |x| 1.0 / (1.0 + (-x).exp()), 4.0, 1e-38),
        (Op::Silu, |x| x / (1.0 + (-x).exp()), 4.0, 1e-36),
        (Op::Tanh, f64::tanh, 4.0, 0.0),
        // In the far tail the exponent's own rounding counts, of values that are next to nothing.
        (Op::GeluTanh, gelu_tanh, 4.0, 1e-7),
        // As there, where products and sums are not fused; the formula's own sum cancels too.
        (Op::Gelu, gelu, 4.0, 1e-8),
        (Op::Erf, erf, 1.0, 0.0),
        (Op::Expm1, f64::exp_m1, 1.0, 0.0),
        (Op::Log, f64::ln, 1.0, 0.0),
        (Op::Log2, f64::log2, 1.0, 0.0),
        (Op::Log10, f64::log10, 1.0, 0.0),
        (Op::Log1p, f64::ln_1p, 1.0, 0.0),
        (Op::Sin, f64::sin, 1.0, 0.0),
        (Op::Cos, f64::cos, 1.0, 0.0),
        (Op::Tan, f64::tan, 1.0, 0.0),
        (Op::Arcsin, f64::asin, 1.0, 0.0),
        (Op::Arccos, f64::acos, 1.0, 0.0),
        (Op::Arctan, f64::atan, 1.0, 0.0),
        (Op::Sinh, f64::sinh, 1.0, 0.0),
        (Op::Cosh, f64::cosh, 1.0, 0.0),
        (Op::Arcsinh, asinh, 1.0, 0.0),
        (Op::Arccosh, f64::acosh, 1.0, 0.0),
        (Op::Arctanh, f64::atanh, 1.0, 0.0),
    ];
    let x = samples();
    on_every_path(|path| {
        for &(op, want, ulps, tiny) in rows {
            let got = unary_f32(op, &x, path);
            check_ulps(&format!("{op:?}"), path, &x, &got, want, ulps, tiny);
        }
    });
}

#[test]
fn functions_of_two_numbers_follow_std() {
    use BinaryOp as Op;
    let mut random = Random::new(2);
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -2.0,
        3.0,
        0.5,
        -0.5,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1e30,
        1e-30,
    ];
    let mut pairs: Vec<(f32, f32)> =
        special.iter().flat_map(|&a| special.iter().map(move |&b| (a, b))).collect();
    for scale in [1.0, 20.0] {
        pairs.extend((0..sized(2000, 15)).map(|_| (random.float() * scale, random.float() * scale)));
        pairs.extend(
            (0..sized(500, 10)).map(|_| ((random.float() * scale).round(), (random.float() * 5.0).round())),
        );
    }
    let (a, b): (Vec<f32>, Vec<f32>) = pairs.iter().copied().unzip();
    let maximum = |a: f64, b: f64| if a > b || a.is_nan() { a } else { b };
    type Row = (Op, fn(f64, f64) -> f64, f64);
    let rows: &[Row] = &[
        (Op::Add, |a, b| a + b, 0.5),
        (Op::Subtract, |a, b| a - b, 0.5),
        (Op::Multiply, |a, b| a * b, 0.5),
        (Op::Divide, |a, b| a / b, 0.5),
        (Op::Maximum, |a, b| if a > b || a.is_nan() { a } else { b }, 0.0),
        (Op::Minimum, |a, b| if a < b || a.is_nan() { a } else { b }, 0.0),
        (Op::Power, f64::powf, 1.0),
        // Miri's own gives a number for NaN.
        (Op::Atan2, |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.atan2(b) }, 1.0),
        (
            Op::Remainder,
            |a, b| {
                let rest = a % b;
                if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
            },
            0.5,
        ),
    ];
    on_every_path(|path| {
        let compute = |op| {
            let chain = Chain::binary(op, [DType::F32, DType::F32], DType::F32, path).unwrap();
            floats(&run(
                &chain,
                &[a.len()],
                &[(bytemuck::cast_slice(&a), &[1]), (bytemuck::cast_slice(&b), &[1])],
            ))
        };
        for &(op, want, ulps) in rows {
            for ((&(a, b), got), at) in pairs.iter().zip(compute(op)).zip(0..) {
                let want = want(a.into(), b.into()) as f32;
                let ulp = f32::from_bits(want.abs().to_bits().max(0x80_0000)) * f32::EPSILON;
                let near = (got - want).abs() <= ulps as f32 * ulp;
                let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
                assert!(
                    same || (near && got != 0.0),
                    "{op:?} of {a}, {b} on {path} ({at}): {got}, not {want}"
                );
            }
        }
        for (&(a, b), got) in pairs.iter().zip(compute(Op::LogAddExp)) {
            let (x, y) = (f64::from(a), f64::from(b));
            let want =
                if x == y && x.is_infinite() { x } else { maximum(x, y) + (-(x - y).abs()).exp().ln_1p() };
            assert!(
                got == want as f32
                    || (got.is_nan() && want.is_nan())
                    || (f64::from(got) - want).abs() <= 2e-7 * want.abs() + 1e-9,
                "log(e^{a} + e^{b}) is {got}, not {want}"
            );
        }
    });
}

#[test]
fn integers_wrap_and_divide_down() {
    use BinaryOp as Op;
    let mut values: Vec<i8> = (-128..=127).map(|x| x as i8).collect();
    values.retain(|&x| sized(true, x % 32 == 0 || x == 127 || (-2..3).contains(&x)));
    let a: Vec<i8> = values.iter().flat_map(|&a| values.iter().map(move |_| a)).collect();
    let b: Vec<i8> = values.iter().flat_map(|_| values.iter().copied()).collect();
    type Row = (Op, fn(i64, i64) -> i64);
    let rows: &[Row] = &[
        (Op::Add, |a, b| a + b),
        (Op::Subtract, |a, b| a - b),
        (Op::Multiply, |a, b| a * b),
        (Op::FloorDivide, |a, b| if b == 0 { 0 } else { (a as f64 / b as f64).floor() as i64 }),
        (Op::Remainder, |a, b| if b == 0 { a } else { a - (a as f64 / b as f64).floor() as i64 * b }),
        (Op::Maximum, i64::max),
        (Op::Minimum, i64::min),
        (Op::BitwiseAnd, |a, b| a & b),
        (Op::BitwiseOr, |a, b| a | b),
        (Op::BitwiseXor, |a, b| a ^ b),
        (Op::Less, |a, b| i64::from(a < b)),
        (Op::LessEqual, |a, b| i64::from(a <= b)),
        (Op::Greater, |a, b| i64::from(a > b)),
        (Op::GreaterEqual, |a, b| i64::from(a >= b)),
        (Op::Equal, |a, b| i64::from(a == b)),
        (Op::NotEqual, |a, b| i64::from(a != b)),
        (Op::LogicalAnd, |a, b| i64::from(a != 0 && b != 0)),
        (Op::LogicalOr, |a, b| i64::from(a != 0 || b != 0)),
        (Op::Power, |a, b| if b < 0 { 0 } else { (0..b).fold(1i64, |p, _| p.wrapping_mul(a)) }),
    ];
    on_every_path(|path| {
        for &(op, want) in rows {
            let chain = Chain::binary(op, [DType::I8, DType::I8], DType::I8, path).unwrap();
            let got = run(
                &chain,
                &[a.len()],
                &[(bytemuck::cast_slice(&a), &[1]), (bytemuck::cast_slice(&b), &[1])],
            );
            for ((&a, &b), got) in a.iter().zip(&b).zip(got) {
                assert_eq!(got, want(a.into(), b.into()) as u8, "{op:?} of {a}, {b} on {path}");
            }
        }
    });
}

#[test]
fn bools_count_as_0_and_1_whatever_their_byte() {
    use BinaryOp as Op;
    let (a, b) = ([0u8, 0, 1, 255], [0u8, 2, 0, 1]);
    let rows = [
        (Op::Add, [0, 1, 1, 1]),
        (Op::Subtract, [0, 1, 1, 0]),
        (Op::Multiply, [0, 0, 0, 1]),
        (Op::Remainder, [0, 0, 1, 0]),
        (Op::FloorDivide, [0, 0, 0, 1]),
        (Op::Power, [1, 0, 1, 1]),
        (Op::Equal, [1, 0, 0, 1]),
        (Op::Less, [0, 1, 0, 0]),
        (Op::GreaterEqual, [1, 0, 1, 1]),
        (Op::BitwiseXor, [0, 1, 1, 0]),
    ];
    on_every_path(|path| {
        for (op, want) in rows {
            let chain = Chain::binary(op, [DType::Bool; 2], DType::Bool, path).unwrap();
            assert_eq!(run(&chain, &[4], &[(&a, &[1]), (&b, &[1])]), want, "{op:?} on {path}");
        }
        let cast = Chain::cast(DType::Bool, DType::I32, path).unwrap();
        assert_eq!(i32s(&run(&cast, &[4], &[(&a, &[1])])), [0, 0, 1, 1]);
    });
}

#[test]
fn casts_follow_rusts_as() {
    let ints: Vec<i64> =
        vec![0, 1, -1, 127, 128, 255, 256, -129, 32768, 70000, 1 << 31, (1 << 53) + 1, i64::MIN, i64::MAX];
    let reals: Vec<f32> = vec![
        0.0,
        -0.0,
        0.9,
        -1.9,
        127.5,
        300.0,
        -1.0,
        65520.0,
        1e10,
        -1e10,
        1e20,
        f32::NAN,
        f32::INFINITY,
        1e-8,
    ];
    on_every_path(|path| {
        macro_rules! check {
            ($from:expr, $T:ty, $source:expr, $($to:ident: $U:ty),*) => { $({
                let chain = Chain::cast($from, DType::$to, path).unwrap();
                let source: &[$T] = $source;
                let got = run(&chain, &[source.len()], &[(bytemuck::cast_slice(source), &[1])]);
                for (got, &x) in got.chunks_exact(size_of::<$U>()).zip(source) {
                    assert_eq!(got, (x as $U).to_ne_bytes(), "{} of {x} on {path}", DType::$to);
                }
            })* };
        }
        check!(DType::I64, i64, &ints, U8: u8, U16: u16, U32: u32, U64: u64, I8: i8, I16: i16, I32: i32, F32: f32);
        check!(DType::F32, f32, &reals, U8: u8, U16: u16, U32: u32, U64: u64, I8: i8, I16: i16, I32: i32, I64: i64);
        let small: Vec<i8> = (-128..=127).map(|x| x as i8).collect();
        check!(DType::I8, i8, &small, U8: u8, U16: u16, U32: u32, U64: u64, I16: i16, I32: i32, I64: i64, F32: f32);
        let chain = Chain::cast(DType::I64, DType::F16, path).unwrap();
        let got = run(&chain, &[ints.len()], &[(bytemuck::cast_slice(&ints), &[1])]);
        for (got, &x) in got.chunks_exact(2).zip(&ints) {
            assert_eq!(got, f16::from_f32(x as f32).to_ne_bytes(), "{x}");
        }
        let chain = Chain::cast(DType::F32, DType::Bool, path).unwrap();
        let got = run(&chain, &[reals.len()], &[(bytemuck::cast_slice(&reals), &[1])]);
        assert!(reals.iter().zip(got).all(|(&x, got)| got == u8::from(x != 0.0)));
    });
}

#[test]
fn sixteen_bit_floats_round_once_an_op() {
    let mut random = Random::new(3);
    let a: Vec<bf16> = random.floats(700).into_iter().map(bf16::from_f32).collect();
    let b: Vec<bf16> = random.floats(700).into_iter().map(bf16::from_f32).collect();
    on_every_path(|path| {
        let mut builder = ChainBuilder::new(path);
        let (x, y) = (builder.input(DType::BF16).unwrap(), builder.input(DType::BF16).unwrap());
        let product = builder.binary(BinaryOp::Multiply, x, y).unwrap();
        let sum = builder.binary(BinaryOp::Add, product, x).unwrap();
        let chain = builder.finish(sum).unwrap();
        let got = run(&chain, &[700], &[(bytemuck::cast_slice(&a), &[1]), (bytemuck::cast_slice(&b), &[1])]);
        for ((a, b), got) in a.iter().zip(&b).zip(got.chunks_exact(2)) {
            let product = bf16::from_f32(a.to_f32() * b.to_f32());
            assert_eq!(got, bf16::from_f32(product.to_f32() + a.to_f32()).to_ne_bytes());
        }
    });
}

#[test]
fn operands_broadcast_and_lie_anyhow() {
    let mut random = Random::new(4);
    on_every_path(|path| {
        let chain = Chain::binary(BinaryOp::Subtract, [DType::F32, DType::I32], DType::F32, path).unwrap();
        for round in 0..sized(60, 9) {
            let rank = random.below(5);
            let sizes: Vec<usize> = (0..rank)
                .map(|_| random.below(if round % 3 == 0 { sized(70, 10) } else { sized(7, 5) }))
                .collect();
            let mut strides = || -> Vec<isize> {
                let mut order: Vec<usize> = (0..rank).collect();
                (0..rank).for_each(|i| order.swap(i, random.below(rank)));
                let mut strides = vec![0; rank];
                let mut step = 1;
                for &axis in &order {
                    if random.below(4) > 0 {
                        strides[axis] = step;
                        step *= sizes[axis].max(1) as isize * (1 + isize::from(random.below(5) == 0));
                    }
                }
                strides
            };
            let strides = [strides(), strides()];
            let reach = |strides: &[isize]| -> usize {
                1 + sizes.iter().zip(strides).map(|(&n, &s)| n.saturating_sub(1) * s as usize).sum::<usize>()
            };
            let a = Random::new(5).floats(reach(&strides[0]));
            let b: Vec<i32> = (0..reach(&strides[1]) as i32).collect();
            let got = floats(&run(
                &chain,
                &sizes,
                &[(bytemuck::cast_slice(&a), &strides[0]), (bytemuck::cast_slice(&b), &strides[1])],
            ));
            let count: usize = sizes.iter().product();
            for (at, got) in got.into_iter().enumerate().take(count) {
                let (mut left, mut places) = (at, [0isize; 2]);
                for axis in (0..rank).rev() {
                    for (place, strides) in places.iter_mut().zip(&strides) {
                        *place += (left % sizes[axis]) as isize * strides[axis];
                    }
                    left /= sizes[axis];
                }
                let want = a[places[0] as usize] - b[places[1] as usize] as f32;
                assert_eq!(got, want, "{sizes:?} {strides:?} at {at} on {path}");
            }
        }
    });
}

#[test]
fn results_may_replace_an_operand() {
    const COUNT: usize = sized(5000, 1100);
    on_every_path(|path| {
        let mut x: Vec<f32> = (0..COUNT).map(|i| i as f32).collect();
        let (sizes, strides) = ([COUNT], [1]);
        let chain = Chain::unary(UnaryOp::Square, DType::F32, DType::F32, path).unwrap();
        let data: *mut u8 = x.as_mut_ptr().cast();
        // SAFETY: the memory of `x`, which is not used otherwise meanwhile; chains may write over an operand.
        unsafe {
            let input = View::from_raw(data, DType::F32, &sizes, &strides);
            chain.run(&Pool::new(2), &mut ViewMut::from_raw(data, DType::F32, &sizes, &strides), &[input]);
        }
        assert!(x.iter().enumerate().all(|(i, &x)| x == (i * i) as f32));
    });
}

#[test]
fn selects_clips_rounds_and_constants() {
    on_every_path(|path| {
        let x: Vec<f32> = vec![0.35, 2.5, -2.5, f32::NAN, 1250.0, -0.04];
        let bytes: &[u8] = bytemuck::cast_slice(&x);
        let round = |decimals| {
            floats(&run(&Chain::round(DType::F32, decimals, path).unwrap(), &[6], &[(bytes, &[1])]))
        };
        assert_eq!(round(0)[..3], [0.0, 2.0, -2.0]);
        assert_eq!(round(1)[0], 0.4);
        assert_eq!(round(-2)[4], 1200.0);
        let ints = [15i32, 25, 35, -15, 14, 0];
        let chain = Chain::round(DType::I32, -1, path).unwrap();
        let got = run(&chain, &[6], &[(bytemuck::cast_slice(&ints), &[1])]);
        assert_eq!(i32s(&got), [20, 20, 40, -20, 10, 0]);
        let mut builder = ChainBuilder::new(path);
        let value = builder.input(DType::F32).unwrap();
        let low = builder.constant(Scalar::Int(-1), DType::F32).unwrap();
        let high = builder.constant(Scalar::Float(1.0), DType::F32).unwrap();
        let clipped = builder.clip(value, Some(low), Some(high)).unwrap();
        let zero = builder.constant(Scalar::Int(0), DType::F32).unwrap();
        let positive = builder.binary(BinaryOp::Greater, value, zero).unwrap();
        let result = builder.select(positive, clipped, low).unwrap();
        let got = floats(&run(&builder.finish(result).unwrap(), &[6], &[(bytes, &[1])]));
        assert_eq!(got, [0.35, 1.0, -1.0, -1.0, 1.0, -1.0]);
        let halves: Vec<f16> = [1.5, -3.0].into_iter().map(f16::from_f32).collect();
        let chain = Chain::select([DType::I64, DType::F16, DType::F16], DType::F16, path).unwrap();
        let conditions = [0i64, -7];
        let got = run(
            &chain,
            &[2],
            &[
                (bytemuck::cast_slice(&conditions), &[1]),
                (bytemuck::cast_slice(&halves), &[1]),
                (bytemuck::cast_slice(&halves), &[0]),
            ],
        );
        assert_eq!(got, bytemuck::cast_slice::<f16, u8>(&halves));
    });
}
