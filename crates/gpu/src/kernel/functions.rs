//! Functions that kernels name. What devices compute with few bits, or with bits that differ from device to device, is written
//! out: halves round to even everywhere, sines keep their digits far from zero.

/// By name; one may call those before it.
pub(super) const FUNCTIONS: &[(&str, &str)] = &[
    (
        "from_f16",
        "fn from_f16(h: u32) -> f32 {
  let sign = (h & 0x8000u) << 16u;
  let rest = (h & 0x7fffu) << 13u;
  if (h & 0x7c00u) == 0x7c00u { return bitcast<f32>(sign | rest | 0x7f800000u); }
  if (h & 0x7c00u) == 0u { return bitcast<f32>(sign | bitcast<u32>(f32(h & 0x3ffu) * 5.9604644775390625e-8)); }
  return bitcast<f32>(sign | (rest + 0x38000000u));
}",
    ),
    (
        "to_f16",
        "fn to_f16(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let sign = (bits >> 16u) & 0x8000u;
  let size = bits & 0x7fffffffu;
  if size > 0x7f800000u { return sign | 0x7e00u; }
  if size >= 0x477ff000u { return sign | 0x7c00u; }
  if size < 0x38800000u { return sign | (bitcast<u32>(bitcast<f32>(size) + 0.5) - 0x3f000000u); }
  return sign | ((size + 0xc8000fffu + ((size >> 13u) & 1u)) >> 13u);
}",
    ),
    (
        "to_bf16",
        "fn to_bf16(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  if (bits & 0x7fffffffu) > 0x7f800000u { return (bits >> 16u) | 0x40u; }
  return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}",
    ),
    ("is_nan", "fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }"),
    ("is_infinite", "fn is_infinite(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }"),
    ("not_a_number", "fn not_a_number() -> f32 { var bits = 0x7fc00000u; return bitcast<f32>(bits); }"),
    ("infinity", "fn infinity() -> f32 { var bits = 0x7f800000u; return bitcast<f32>(bits); }"),
    (
        "float_to_int",
        "fn float_to_int(x: f32) -> i32 {
  if is_nan(x) { return 0i; }
  if x >= 2147483648.0 { return 2147483647i; }
  if x <= -2147483648.0 { return -2147483647i - 1i; }
  return i32(x);
}",
    ),
    (
        "float_to_uint",
        "fn float_to_uint(x: f32) -> u32 {
  if !(x > 0.0) { return 0u; }
  if x >= 4294967296.0 { return 0xffffffffu; }
  return u32(x);
}",
    ),
    (
        "float_to_long",
        "fn float_to_long(x: f32) -> i64 {
  if is_nan(x) { return 0li; }
  if x >= 9223372036854775808.0 { return 9223372036854775807li; }
  if x <= -9223372036854775808.0 { return -9223372036854775807li - 1li; }
  return i64(x);
}",
    ),
    (
        "float_to_ulong",
        "fn float_to_ulong(x: f32) -> u64 {
  if !(x > 0.0) { return 0lu; }
  if x >= 18446744073709551616.0 { return 18446744073709551615lu; }
  return u64(x);
}",
    ),
    // An integer in the order of floats: zeros are one, NaN is the last.
    (
        "float_order",
        "fn float_order(x: f32) -> i32 {
  let bits = bitcast<i32>(x);
  if is_nan(x) { return 2147483647i; }
  if (bits << 1u) == 0i { return 0i; }
  return select(bits, bits ^ 2147483647i, bits < 0i);
}",
    ),
    (
        "e2m1",
        "fn e2m1(code: u32) -> f32 {
  let size = f32((0xc8643210u >> ((code & 7u) << 2u)) & 15u) * 0.5;
  return select(size, -size, (code & 8u) != 0u);
}",
    ),
    (
        "e4m3fn",
        "fn e4m3fn(code: u32) -> f32 {
  let size = code & 0x7fu;
  if size == 0x7fu { return not_a_number(); }
  let value = select(bitcast<f32>((size << 20u) + 0x3c000000u), f32(size) * 0.001953125, size < 8u);
  return select(value, -value, (code & 0x80u) != 0u);
}",
    ),
    (
        "e8m0",
        "fn e8m0(code: u32) -> f32 {
  if code == 255u { return not_a_number(); }
  return bitcast<f32>(max(code << 23u, 0x400000u));
}",
    ),
    // Four codes of e2m1 in the low halves of bytes, each as 16 and twice what it stands for, without a carry between them.
    (
        "e2m1_bytes",
        "fn e2m1_bytes(codes: vec4<u32>) -> vec4<u32> {
  let ones = vec4<u32>(0x01010101u);
  let low = codes & vec4<u32>(0x07070707u);
  let large = (codes >> vec4<u32>(2u)) & ones;
  let rest = codes & (large | (large << vec4<u32>(1u)));
  let size = low + rest + ((rest & (rest >> vec4<u32>(1u)) & ones) << vec4<u32>(1u));
  let below = size & (((codes >> vec4<u32>(3u)) & ones) * vec4<u32>(255u));
  return vec4<u32>(0x10101010u) + (size ^ below) - below;
}",
    ),
    // A NaN on either side wins; of equals the second is given.
    ("max_f32", "fn max_f32(a: f32, b: f32) -> f32 { return select(b, a, a > b || is_nan(a)); }"),
    ("min_f32", "fn min_f32(a: f32, b: f32) -> f32 { return select(b, a, a < b || is_nan(a)); }"),
    (
        "log1p",
        "fn log1p(x: f32) -> f32 {
  let u = 1.0 + x;
  if x < -1.0 { return not_a_number(); }
  if u == 1.0 || is_infinite(u) { return x; }
  return log(u) * (x / (u - 1.0));
}",
    ),
    (
        "log_add_exp",
        "fn log_add_exp(a: f32, b: f32) -> f32 {
  if a == b && is_infinite(a) { return a; }
  return max_f32(a, b) + log1p(exp(-abs(a - b)));
}",
    ),
    // Rounded down; by zero it is zero, and the least by -1 wraps.
    (
        "floor_divide_i32",
        "fn floor_divide_i32(a: i32, b: i32) -> i32 {
  if b == 0i { return 0i; }
  if b == -1i { return 0i - a; }
  let quotient = a / b;
  return quotient - select(0i, 1i, quotient * b != a && (a < 0i) != (b < 0i));
}",
    ),
    (
        "floor_divide_i64",
        "fn floor_divide_i64(a: i64, b: i64) -> i64 {
  if b == 0li { return 0li; }
  if b == -1li { return 0li - a; }
  let quotient = a / b;
  return quotient - select(0li, 1li, quotient * b != a && (a < 0li) != (b < 0li));
}",
    ),
    (
        "expm1",
        "fn expm1(x: f32) -> f32 {
  if abs(x) < 0.3 {
    let even = 1.0 + x * (0.5 + x * (0.16666667 + x * (0.041666668 + x * (0.008333334 + x * (0.0013888889 + x * 0.0001984127)))));
    return x * even;
  }
  return exp(x) - 1.0;
}",
    ),
    (
        "tanh_f32",
        "fn tanh_f32(x: f32) -> f32 {
  let t = expm1(-2.0 * abs(x));
  let size = -t / (t + 2.0);
  return select(size, -size, x < 0.0);
}",
    ),
    (
        "sinh_f32",
        "fn sinh_f32(x: f32) -> f32 {
  let size = abs(x);
  let t = expm1(size);
  var half = 0.5 * (t + t / (t + 1.0));
  if size > 80.0 { let e = exp(0.5 * size); half = (0.5 * e) * e; }
  return select(half, -half, x < 0.0);
}",
    ),
    (
        "cosh_f32",
        "fn cosh_f32(x: f32) -> f32 {
  let e = exp(0.5 * abs(x));
  return (0.5 * e) * e + 0.5 * exp(-abs(x));
}",
    ),
    (
        "asinh_f32",
        "fn asinh_f32(x: f32) -> f32 {
  let size = abs(x);
  var r = log1p(size + size * size / (1.0 + sqrt(1.0 + size * size)));
  if size > 1e10 { r = log(size) + 0.6931471805599453; }
  return select(r, -r, x < 0.0);
}",
    ),
    (
        "acosh_f32",
        "fn acosh_f32(x: f32) -> f32 {
  if x < 1.0 { return not_a_number(); }
  if x > 1e10 { return log(x) + 0.6931471805599453; }
  let t = x - 1.0;
  return log1p(t + sqrt(2.0 * t + t * t));
}",
    ),
    (
        "atanh_f32",
        "fn atanh_f32(x: f32) -> f32 {
  let size = abs(x);
  if size > 1.0 { return not_a_number(); }
  let r = select(0.5 * log1p(2.0 * size / (1.0 - size)), infinity(), size == 1.0);
  return select(r, -r, x < 0.0);
}",
    ),
    // The upper half of a product.
    (
        "high_product",
        "fn high_product(a: u32, b: u32) -> u32 {
  let low = (a & 65535u) * (b & 65535u);
  let one = (a >> 16u) * (b & 65535u) + (low >> 16u);
  let other = (a & 65535u) * (b >> 16u) + (one & 65535u);
  return (a >> 16u) * (b >> 16u) + (one >> 16u) + (other >> 16u);
}",
    ),
    // What is left of `m * 2^(exponent - 32)` radians when whole turns are taken off, in parts of 2^32 of one: the product with those
    // 64 bits of 1 / (2 pi) that do not give whole turns.
    (
        "turn_of",
        "fn turn_of(m: u32, exponent: u32) -> u32 {
  var bits = array<u32, 8>(0u, 0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u, 0x7f9458eau);
  let word = min(exponent >> 5u, 5u);
  let shift = exponent & 31u;
  let high = select(bits[word], (bits[word] << shift) | (bits[word + 1u] >> ((32u - shift) & 31u)), shift > 0u);
  let low = select(bits[word + 1u], (bits[word + 1u] << shift) | (bits[word + 2u] >> ((32u - shift) & 31u)), shift > 0u);
  return m * high + high_product(m, low);
}",
    ),
    // Sine and cosine of a number of at most an eighth of a turn.
    (
        "sin_cos_small",
        "fn sin_cos_small(r: f32) -> vec2<f32> {
  let z = r * r;
  let s = r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
  let c = 1.0 - 0.5 * z + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
  return vec2<f32>(s, c);
}",
    ),
    (
        "sin_cos_quarter",
        "fn sin_cos_quarter(r: f32, quarter: i32) -> vec2<f32> {
  let found = sin_cos_small(r);
  let q = quarter & 3i;
  let swapped = select(found, found.yx, (q & 1i) == 1i);
  return vec2<f32>(select(swapped.x, -swapped.x, q >= 2i), select(swapped.y, -swapped.y, q == 1i || q == 2i));
}",
    ),
    (
        "sin_cos_turn",
        "fn sin_cos_turn(turn: u32, negative: bool) -> vec2<f32> {
  let quarter = (turn + 0x20000000u) >> 30u;
  let found = sin_cos_quarter(f32(bitcast<i32>(turn - (quarter << 30u))) * 1.462918079267159e-9, i32(quarter));
  return vec2<f32>(select(found.x, -found.x, negative), found.y);
}",
    ),
    // Sine and cosine: the quadrant is taken off in three parts, so that positions far out keep their digits.
    (
        "sin_cos",
        "fn sin_cos(x: f32) -> vec2<f32> {
  if !(abs(x) < 200000.0) { return vec2<f32>(sin(x), cos(x)); }
  let n = round(x * 0.6366197723675814);
  let r = ((x - n * 1.5703125) - n * 4.837512969970703125e-4) - n * 7.54978995489188216e-8;
  return sin_cos_quarter(r, i32(n));
}",
    ),
    // The same of any number.
    (
        "sin_cos_f32",
        "fn sin_cos_f32(x: f32) -> vec2<f32> {
  let size = bitcast<u32>(x) & 0x7fffffffu;
  if size >= 0x7f800000u { return vec2<f32>(not_a_number()); }
  if size < 0x48000000u { return sin_cos(x); }
  return sin_cos_turn(turn_of((size & 0x7fffffu) | 0x800000u, (size >> 23u) - 118u), x < 0.0);
}",
    ),
    ("tangent", "fn tangent(found: vec2<f32>) -> f32 { return found.x / found.y; }"),
    (
        "atan_f32",
        "fn atan_f32(x: f32) -> f32 {
  let size = abs(x);
  var rest = size;
  var angle = 0.0;
  if size > 2.414213562373095 { angle = 1.5707963267948966; rest = -1.0 / size; }
  else if size > 0.4142135623730950 { angle = 0.7853981633974483; rest = (size - 1.0) / (size + 1.0); }
  let z = rest * rest;
  let r = angle + (rest + rest * z * (-3.33329491539e-1 + z * (1.99777106478e-1 + z * (-1.38776856032e-1 + z * 8.05374449538e-2))));
  return select(r, -r, x < 0.0);
}",
    ),
    // Of a number whose square is `z`, at most a half.
    (
        "asin_small",
        "fn asin_small(x: f32, z: f32) -> f32 {
  return x + x * z * (1.6666752422e-1 + z * (7.4953002686e-2 + z * (4.5470025998e-2 + z * (2.4181311049e-2 + z * 4.2163199048e-2))));
}",
    ),
    (
        "asin_f32",
        "fn asin_f32(x: f32) -> f32 {
  let size = abs(x);
  if !(size <= 1.0) { return not_a_number(); }
  var r = asin_small(size, size * size);
  if size > 0.5 { let z = 0.5 * (1.0 - size); r = 1.5707963267948966 - 2.0 * asin_small(sqrt(z), z); }
  return select(r, -r, x < 0.0);
}",
    ),
    (
        "acos_f32",
        "fn acos_f32(x: f32) -> f32 {
  let size = abs(x);
  if !(size <= 1.0) { return not_a_number(); }
  if size <= 0.5 { return 1.5707963267948966 - asin_small(x, x * x); }
  let z = 0.5 * (1.0 - size);
  let r = 2.0 * asin_small(sqrt(z), z);
  return select(r, 3.141592653589793 - r, x < 0.0);
}",
    ),
    (
        "with_sign",
        "fn with_sign(size: f32, sign: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(size) & 0x7fffffffu) | (bitcast<u32>(sign) & 0x80000000u));
}",
    ),
    (
        "atan2_f32",
        "fn atan2_f32(y: f32, x: f32) -> f32 {
  if is_nan(y) || is_nan(x) { return not_a_number(); }
  let up = abs(y);
  let along = abs(x);
  var r = 0.0;
  if is_infinite(y) && is_infinite(x) { r = 0.7853981633974483; }
  else if up > along { r = 1.5707963267948966 - atan_f32(along / up); }
  else if along > 0.0 { r = atan_f32(up / along); }
  if (bitcast<u32>(x) >> 31u) == 1u { r = 3.141592653589793 - r; }
  return with_sign(r, y);
}",
    ),
    // What is left of a division, exactly: of integers, eight bits at a time. Devices may take small floats for zeros.
    (
        "rest_f32",
        "fn rest_f32(a: f32, b: f32) -> f32 {
  let one = bitcast<u32>(a) & 0x7fffffffu;
  let other = bitcast<u32>(b) & 0x7fffffffu;
  if one >= 0x7f800000u || other > 0x7f800000u || other == 0u { return not_a_number(); }
  if one < other { return a; }
  let low = max(other >> 23u, 1u);
  var apart = max(one >> 23u, 1u) - low;
  let divisor = (other & 0x7fffffu) | select(0u, 0x800000u, other >= 0x800000u);
  var rest = ((one & 0x7fffffu) | select(0u, 0x800000u, one >= 0x800000u)) % divisor;
  for (; apart >= 8u; apart -= 8u) { rest = (rest << 8u) % divisor; }
  rest = (rest << apart) % divisor;
  let shift = countLeadingZeros(rest) - 8u;
  var bits = rest << ((low - 1u) & 31u);
  if shift < low { bits = ((low - shift) << 23u) | ((rest << shift) & 0x7fffffu); }
  if rest == 0u { bits = 0u; }
  return bitcast<f32>(bits | (bitcast<u32>(a) & 0x80000000u));
}",
    ),
    (
        "remainder_f32",
        "fn remainder_f32(a: f32, b: f32) -> f32 {
  let rest = rest_f32(a, b);
  return select(rest, rest + b, rest != 0.0 && (rest < 0.0) != (b < 0.0));
}",
    ),
    (
        "floor_divide_f32",
        "fn floor_divide_f32(a: f32, b: f32) -> f32 {
  if b == 0.0 { return a / b; }
  let rest = rest_f32(a, b);
  var quotient = (a - rest) / b;
  if rest != 0.0 && (rest < 0.0) != (b < 0.0) { quotient -= 1.0; }
  if quotient == 0.0 { return with_sign(0.0, a / b); }
  let below = floor(quotient);
  return select(below, below + 1.0, quotient - below > 0.5);
}",
    ),
    // A quotient as it is rounded once, which devices do not promise; `b` is a power of ten.
    (
        "quotient_f32",
        "fn quotient_f32(a: f32, b: f32) -> f32 {
  let one = bitcast<u32>(a) & 0x7fffffffu;
  let other = bitcast<u32>(b);
  if one < 0x800000u || one >= 0x7f800000u || other >= 0x7f800000u { return a / b; }
  var rest = (one & 0x7fffffu) | 0x800000u;
  let divisor = (other & 0x7fffffu) | 0x800000u;
  var exponent = i32(one >> 23u) - i32(other >> 23u) + 127i;
  if rest < divisor { rest <<= 1u; exponent -= 1i; }
  if exponent <= 0i { return with_sign(0.0, a); }
  var bits = 1u;
  rest -= divisor;
  for (var i = 0; i < 3; i++) { rest <<= 8u; bits = (bits << 8u) | (rest / divisor); rest %= divisor; }
  let odd = (bits & 1u) != 0u && (rest != 0u || (bits & 2u) != 0u);
  bits = (u32(exponent) << 23u) + ((bits >> 1u) - 0x800000u) + select(0u, 1u, odd);
  return bitcast<f32>(bits | (bitcast<u32>(a) & 0x80000000u));
}",
    ),
    // To a multiple of a unit, halves to even.
    (
        "round_i32",
        "fn round_i32(x: i32, unit: i32) -> i32 {
  let below = floor_divide_i32(x, unit);
  let rest = x - below * unit;
  let up = rest > unit - rest || (rest == unit - rest && (below & 1i) != 0i);
  return (below + select(0i, 1i, up)) * unit;
}",
    ),
    (
        "round_u32",
        "fn round_u32(x: u32, unit: u32) -> u32 {
  let below = x / unit;
  let rest = x - below * unit;
  let up = rest > unit - rest || (rest == unit - rest && (below & 1u) != 0u);
  return (below + select(0u, 1u, up)) * unit;
}",
    ),
    (
        "round_i64",
        "fn round_i64(x: i64, unit: i64) -> i64 {
  let below = floor_divide_i64(x, unit);
  let rest = x - below * unit;
  let up = rest > unit - rest || (rest == unit - rest && (below & 1li) != 0li);
  return (below + select(0li, 1li, up)) * unit;
}",
    ),
    (
        "round_u64",
        "fn round_u64(x: u64, unit: u64) -> u64 {
  let below = x / unit;
  let rest = x - below * unit;
  let up = rest > unit - rest || (rest == unit - rest && (below & 1lu) != 0lu);
  return (below + select(0lu, 1lu, up)) * unit;
}",
    ),
    (
        "power_i32",
        "fn power_i32(a: i32, b: i32) -> i32 {
  if b < 0i { return 0i; }
  var power = 1i;
  var square = a;
  for (var left = b; left > 0i; left = left >> 1u) {
    if (left & 1i) != 0i { power *= square; }
    square *= square;
  }
  return power;
}",
    ),
    (
        "power_u32",
        "fn power_u32(a: u32, b: u32) -> u32 {
  var power = 1u;
  var square = a;
  for (var left = b; left > 0u; left = left >> 1u) {
    if (left & 1u) != 0u { power *= square; }
    square *= square;
  }
  return power;
}",
    ),
    (
        "power_i64",
        "fn power_i64(a: i64, b: i64) -> i64 {
  if b < 0li { return 0li; }
  var power = 1li;
  var square = a;
  for (var left = b; left > 0li; left = left >> 1u) {
    if (left & 1li) != 0li { power *= square; }
    square *= square;
  }
  return power;
}",
    ),
    (
        "power_u64",
        "fn power_u64(a: u64, b: u64) -> u64 {
  var power = 1lu;
  var square = a;
  for (var left = b; left > 0lu; left = left >> 1u) {
    if (left & 1lu) != 0lu { power *= square; }
    square *= square;
  }
  return power;
}",
    ),
    (
        "erf_f32",
        "fn erf_f32(x: f32) -> f32 {
  if is_nan(x) { return x; }
  if abs(x) > 4.0 { return select(1.0, -1.0, x < 0.0); }
  var sum = x;
  var term = x;
  var n = 1.0;
  for (var i = 0; i < 64; i++) {
    n += 2.0;
    term *= 2.0 * x * x / n;
    sum += term;
    if abs(term) <= abs(sum) * 1e-9 { break; }
  }
  return 1.1283791670955126 * exp(-x * x) * sum;
}",
    ),
    (
        "pow_f32",
        "fn pow_f32(a: f32, b: f32) -> f32 {
  if b == 0.0 || a == 1.0 { return 1.0; }
  if is_nan(a) || is_nan(b) { return not_a_number(); }
  let whole = b == floor(b);
  let odd = whole && abs(b) < 16777216.0 && (i32(b) & 1i) != 0i;
  if a == 0.0 {
    let size = select(0.0, infinity(), b < 0.0);
    return select(size, with_sign(size, a), odd);
  }
  if a < 0.0 && !whole && !is_infinite(a) { return not_a_number(); }
  if abs(b) <= 4.0 && whole {
    var power = 1.0;
    for (var i = 0; i < i32(abs(b)); i++) { power *= a; }
    return select(power, 1.0 / power, b < 0.0);
  }
  let size = select(pow(abs(a), b), 1.0, abs(a) == 1.0);
  return select(size, -size, odd && a < 0.0);
}",
    ),
];
