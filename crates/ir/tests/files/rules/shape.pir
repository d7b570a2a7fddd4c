; Ops that move elements and make shapes (semantics.md, section 5).

;;; axes inserted and removed
graph "axes inserted and removed"
  symbol T in 2..=64
  input %0 "x": f32[1, T, 1, 4]
  input %1 "s": i32[]
{
  %2: f32[1, 1, T, 1, 4] = expand_dims(x=%0, axis=0)
  %3: f32[1, T, 1, 4, 1] = expand_dims(x=%0, axis=-1)
  %4: i32[1] = expand_dims(x=%1, axis=0)
  %5: f32[T, 4] = squeeze(x=%0)
  %6: f32[T, 4] = squeeze(x=%0, dims=[])
  %7: f32[T, 1, 4] = squeeze(x=%0, dims=[0])
  %8: f32[1, T, 4] = squeeze(x=%0, dims=[-2])
  %9: f32[1, T, 1, 4] = squeeze(x=%0, dims=[3])
  %10: f32[1, T, 1, 4] = squeeze(x=%0, dims=[1])
  %11: i32[] = squeeze(x=%1, dims=[0])
}

;;; axes that do not exist
graph "axes that do not exist"
  input %0 "x": f32[2, 3]
{
  %1: f32[1, 2, 3] = expand_dims(x=%0, axis=3)  ; error: axis 3 is outside a tensor of rank 3
  %2: f32[1, 2, 3] = expand_dims(x=%0, axis=-4)  ; error: axis -4 is outside a tensor of rank 3
  %3: f32[2, 3] = squeeze(x=%0, dims=[2])  ; error: axis 2 is outside a tensor of rank 2
  %4: f32[2, 3] = flip(x=%0, axes=[2])  ; error: axis 2 is outside a tensor of rank 2
  %5: f32[2, 3] = roll(x=%0, shift=[1], axes=[2])  ; error: axis 2 is outside a tensor of rank 2
  %6: f32[2, 3] = repeat(x=%0, repeats=1, axis=2)  ; error: axis 2 is outside a tensor of rank 2
}

;;; repetition
graph "repetition"
  symbol T in 2..=64
  symbol n in 0..=3
  symbol product in 0..=192
  input %0 "x": f32[2, T]
  input %1 "n": int(n)
{
  %2: f32[4, 3*T] = tile(x=%0, reps=[2, 3])
  %3: f32[2, 5*T] = tile(x=%0, reps=[5])
  %4: f32[3, 2, T] = tile(x=%0, reps=[3, 1, 1])
  %5: f32[2, T] = tile(x=%0, reps=[])
  %6: f32[2, 0] = tile(x=%0, reps=[0])
  %7: f32[2*n, T] = tile(x=%0, reps=[%1, 1])
  %8: f32[2, product] = tile(x=%0, reps=[%1])
  %9: f32[6, T] = repeat(x=%0, repeats=3, axis=0)
  %10: f32[2, 2*T] = repeat(x=%0, repeats=2, axis=-1)
  %11: f32[2*n, T] = repeat(x=%0, repeats=%1, axis=0)
  %12: f32[2, T] = tile(x=%0, reps=[-1])  ; error: -1 is not a size
  %13: f32[2, T] = repeat(x=%0, repeats=-2, axis=0)  ; error: -2 is not a size
}

;;; pieces
graph "pieces"
  symbol T in 2..=64
  input %0 "x": f32[7, T]
  input %1 "e": f32[0]
  input %2 "n": int(T)
{
  %3: f32[3, T], %4: f32[3, T], %5: f32[1, T] = split(x=%0, sizes=[3], axis=0)
  %6: f32[2, T], %7: f32[5, T] = split(x=%0, sizes=[2, 5], axis=0)
  %8: f32[7, T] = split(x=%0, sizes=[7], axis=0)
  %9: f32[7, T] = split(x=%0, sizes=[9], axis=0)
  %10: f32[7, T] = split(x=%0, sizes=[%2], axis=1)
  %11: int(T-2) = subtract_int(a=%2, b=2)
  %12: f32[7, 2], %13: f32[7, T-2] = split(x=%0, sizes=[2, %11], axis=1)
  %14: f32[7, 2], %15: f32[7, T] = split(x=%0, sizes=[2, %2], axis=1)  ; error: the axis and the sum of its pieces differ: T and T+2
  %16: f32[0] = split(x=%1, sizes=[4], axis=0)
  %17: f32[7, T] = split(x=%0, sizes=[2], axis=1)  ; error: the number of pieces must be known: give each piece's length
  %18: f32[2, T], %19: f32[4, T] = split(x=%0, sizes=[2, 4], axis=0)  ; error: the axis and the sum of its pieces differ: 7 and 6
  %20: f32[3, T], %21: f32[4, T] = split(x=%0, sizes=[3], axis=0)  ; error: 2 results are listed where the op gives 3
  %22: f32[7, T] = split(x=%0, sizes=[0], axis=0)  ; error: pieces of length 0
  %23: f32[7, T] = split(x=%0, sizes=[3], axis=2)  ; error: axis 2 is outside a tensor of rank 2
}

;;; broadcast to a shape
graph "broadcast to a shape"
  symbol T in 2..=64
  input %0 "x": f32[1, T]
  input %1 "t": int(T)
{
  %2: f32[4, T] = broadcast_to(x=%0, shape=[4, -1])
  %3: f32[2, 4, T] = broadcast_to(x=%0, shape=[2, 4, %1])
  %4: f32[1, T] = broadcast_to(x=%0, shape=[-1, -1])
  %5: f32[4, 8] = broadcast_to(x=%0, shape=[4, 8])
  ; T may be 1 when this runs.
  %6: f32[4, 100] = broadcast_to(x=%0, shape=[4, 100])
  %7: f32[2, 1, T] = broadcast_to(x=%0, shape=[-1, 1, %1])  ; error: -1 on an axis that the tensor does not have
  %8: f32[T] = broadcast_to(x=%0, shape=[%1])  ; error: a shape and what it should broadcast to differ: [1, T] and [T]
  %9: f32[4, T] = broadcast_to(x=%0, shape=[-2, %1])  ; error: -2 is not a size
}

;;; broadcast of known sizes
graph "broadcast of known sizes"
  input %0 "x": f32[3, 1]
{
  %1: f32[3, 5] = broadcast_to(x=%0, shape=[3, 5])
  %2: f32[3, 0] = broadcast_to(x=%0, shape=[-1, 0])
  %3: f32[2, 5] = broadcast_to(x=%0, shape=[2, 5])  ; error: a shape and what it should broadcast to differ: [3, 1] and [2, 5]
}

;;; padding
graph "padding"
  symbol T in 2..=64
  input %0 "x": f32[2, T]
  input %1 "t": int(T)
  input %2 "e": f32[0]
{
  %3: f32[5, T+1] = pad(x=%0, pad_width=[1, 2, 0, 1], mode="constant")
  %4: f32[2, T+4] = pad(x=%0, pad_width=[0, 0, 2, 2], mode="edge")
  %5: f32[2, 2*T] = pad(x=%0, pad_width=[0, 0, %1, 0], mode="constant", constant_value=-inf)
  %6: f32[3] = pad(x=%2, pad_width=[1, 2], mode="constant")
  %7: f32[3] = pad(x=%2, pad_width=[1, 2], mode="edge")  ; error: an empty axis has no edge to repeat
  %8: f32[2, T] = pad(x=%0, pad_width=[0, 0, -1, 0], mode="constant")  ; error: -1 is not a size
  %9: f32[2, T] = pad(x=%0, pad_width=[0, 0], mode="constant")  ; error: 2 widths for rank 2
  %10: f32[2, T] = pad(x=%0, pad_width=[0, 0, 0, 0], mode="reflect")  ; error: padding mode "reflect" is neither constant nor edge
}

;;; other shapes of the same elements
graph "other shapes of the same elements"
  symbol T in 2..=64
  symbol B in 1..=4
  symbol rows in 0..=256
  symbol all in 0..=2048
  input %0 "x": f32[B, T, 8]
  input %1 "k": f32[2, 3, 4]
  input %2 "b": int(B)
  input %3 "t": int(T)
  input %4 "s": f32[]
  input %5 "e": f32[0, 4]
{
  %6: f32[6, 4] = reshape(x=%1, shape=[6, 4])
  %7: f32[24] = reshape(x=%1, shape=[-1])
  %8: f32[2, 12] = reshape(x=%1, shape=[2, -1])
  %9: f32[B, T, 2, 4] = reshape(x=%0, shape=[%2, %3, 2, 4])
  %10: f32[B, 2*T, 4] = reshape(x=%0, shape=[%2, -1, 4])
  %11: f32[B, T, 8] = reshape(x=%0, shape=[%2, %3, -1])
  %12: f32[rows, 8] = reshape(x=%0, shape=[-1, 8])
  %13: f32[all] = reshape(x=%0, shape=[-1])
  %14: f32[1] = reshape(x=%4, shape=[-1])
  %15: f32[] = reshape(x=%4, shape=[])
  %16: f32[4, 0] = reshape(x=%5, shape=[4, 0])
  %17: f32[5, 5] = reshape(x=%1, shape=[5, 5])  ; error: element counts differ: [2, 3, 4] and [5, 5]
  %18: f32[5, 5] = reshape(x=%1, shape=[5, -1])  ; error: element counts differ: [2, 3, 4] and [5, -1]
  %19: f32[2, 3, 4] = reshape(x=%1, shape=[-1, -1])  ; error: [-1, -1] is not a shape
  %20: f32[2, 3, 4] = reshape(x=%1, shape=[-2])  ; error: [-2] is not a shape
  %21: f32[0, 0] = reshape(x=%5, shape=[0, -1])  ; error: element counts differ: [0, 4] and [0, -1]
}

;;; permuted axes
graph "permuted axes"
  symbol T in 2..=64
  input %0 "x": f32[2, T, 4]
{
  %1: f32[4, 2, T] = transpose(x=%0, perm=[2, 0, 1])
  %2: f32[2, 4, T] = transpose(x=%0, perm=[0, -1, -2])
  %3: f32[2, T] = transpose(x=%0, perm=[0, 1])  ; error: [0, 1] is not a permutation of 3 axes
  %4: f32[2, T, 4] = transpose(x=%0, perm=[0, 1, 1])  ; error: [0, 1, 1] is not a permutation of 3 axes
  %5: f32[2, T, 4] = transpose(x=%0, perm=[0, 1, 3])  ; error: axis 3 is outside a tensor of rank 3
}

;;; strides
graph "strides"
  symbol T in 2..=64
  input %0 "x": f32[4, 4]
  input %1 "t": int(T)
{
  %2: f32[2, 2] = as_strided(x=%0, shape=[2, 2], strides=[8, 1], offset=3)
  %3: f32[T] = as_strided(x=%0, shape=[%1], strides=[0])
  %4: f32[2, 2] = as_strided(x=%0, shape=[2, 2], strides=[1])  ; error: 2 sizes and 1 strides
  %5: f32[2] = as_strided(x=%0, shape=[-2], strides=[1])  ; error: -2 is not a size
}

;;; slices by Python's rules
graph "slices by Python's rules"
  input %0 "x": f32[5, 6]
{
  %1: f32[3, 6] = slice(x=%0, axis=0, start=1, stop=4)
  %2: f32[5, 2] = slice(x=%0, axis=-1, start=-2, stop=9223372036854775807)
  %3: f32[5, 3] = slice(x=%0, axis=1, start=0, stop=6, step=2)
  %4: f32[0, 6] = slice(x=%0, axis=0, start=4, stop=2)
  %5: f32[5, 6] = slice(x=%0, axis=0, start=4, stop=-6, step=-1)
  %6: f32[2, 6] = slice(x=%0, axis=0, start=100, stop=0, step=-2)
  %7: f32[5, 6] = slice(x=%0, axis=0, start=0, stop=5, step=0)  ; error: a slice with step 0
  %8: f32[5, 6] = slice(x=%0, axis=2, start=0, stop=5)  ; error: axis 2 is outside a tensor of rank 2
}

;;; slices of symbolic sizes
graph "slices of symbolic sizes"
  symbol T in 2..=64
  symbol n in 0..
  symbol start in i32
  symbol open in 0..=64
  symbol five in 0..=5
  symbol wide in 0..
  input %0 "x": f32[5, T]
  input %1 "c": f32[64, n]
  input %2 "t": int(T)
  input %3 "start": int(start)
{
  %4: f32[5, T] = slice(x=%0, axis=1, start=0, stop=%2)
  %5: f32[5, T] = slice(x=%0, axis=1, start=0, stop=9223372036854775807)
  %6: f32[T, n] = slice(x=%1, axis=0, start=0, stop=%2)
  %7: f32[-T+64, n] = slice(x=%1, axis=0, start=%2, stop=64)
  %8: f32[5, open] = slice(x=%0, axis=1, start=1, stop=%2)
  %9: f32[5, open] = slice(x=%0, axis=1, start=0, stop=%2, step=2)
  %10: f32[5, open] = slice(x=%0, axis=1, start=-1, stop=9223372036854775807)
  %11: f32[five, open] = slice(x=%0, axis=%3, start=0, stop=1)
  %12: f32[open, wide] = slice(x=%1, axis=%2, start=0, stop=1)
}

;;; slices replaced
graph "slices replaced"
  symbol T in 2..=64
  symbol pos in 0..=60
  input %0 "cache": f16[1, 2, 64, 16]
  input %1 "new": f32[1, 2, T, 16]
  input %2 "row": f32[1, 1, 1, 16]
  input %3 "long": f32[1, 2, 3, 16]
  input %4 "start": int(T)
  input %5 "t": int(T)
  input %6 "p": int(pos)
{
  %7: f16[1, 2, 64, 16] = slice_update(dst=%0, update=%1, axis=2, start=0, stop=%5)
  %8: f16[1, 2, 64, 16] = slice_update(dst=%0, update=%2, axis=2, start=5, stop=9)
  %9: f16[1, 2, 64, 16] = slice_update(dst=%0, update=%3, axis=-2, start=0, stop=6, step=2)
  %10: int(pos+3) = add_int(a=%6, b=3)
  %11: f16[1, 2, 64, 16] = slice_update(dst=%0, update=%3, axis=2, start=%6, stop=%10)
  %12: f16[1, 2, 64, 16] = slice_update(dst=%0, update=%3, axis=2, start=9, stop=9)
  %13: f16[1, 2, 64, 16] = slice_update(dst=%0, update=%3, axis=2, start=0, stop=4)  ; error: an update and the slice that it replaces differ: [1, 2, 3, 16] and [1, 2, 4, 16]
  %14: f16[1, 2, 64, 16] = slice_update(dst=%0, update=%3, axis=2, start=62, stop=65)  ; error: an update and the slice that it replaces differ: [1, 2, 3, 16] and [1, 2, 2, 16]
  %15: f16[1, 2, 64, 16] = slice_update(dst=%0, update=%3, axis=2, start=3, stop=0, step=-1)  ; error: an update with step -1
  %16: f32[1, 2, 64, 16] = slice_update(dst=%0, update=%1, axis=2, start=0, stop=%5)  ; error: %16 is declared f32[1, 2, 64, 16], but the op gives f16[1, 2, 64, 16]
}

;;; joined along an axis
graph "joined along an axis"
  symbol T in 2..=64
  input %0 "a": f16[2, T]
  input %1 "b": i32[2, 3]
  input %2 "c": bf16[2, T]
  input %3 "d": f16[3, T]
  input %4 "s": f16[]
{
  %5: f16[2, T+3] = concatenate(tensors=[%0, %1], axis=1)
  %6: f32[4, T] = concatenate(tensors=[%0, %2], axis=0)
  %7: f16[5, T] = concatenate(tensors=[%0, %3], axis=-2)
  %8: f16[2, T] = concatenate(tensors=[%0], axis=0)
  %9: f32[2, 2, T] = stack(tensors=[%0, %2])
  %10: f32[2, T, 2] = stack(tensors=[%0, %2], axis=-1)
  %11: f16[2, 3, T] = stack(tensors=[%0, %0, %0], axis=1)
  %12: f16[2] = stack(tensors=[%4, %4])
  %13: f16[5, T] = concatenate(tensors=[%0, %3], axis=1)  ; error: sizes beside the joined axis differ: 2 and 3
  %14: f16[2] = concatenate(tensors=[%4, %4], axis=0)  ; error: axis 0 is outside a tensor of rank 0
  %15: f16[2] = concatenate(tensors=[], axis=0)  ; error: nothing to concatenate
  %16: f16[2, T] = concatenate(tensors=[%0, %4], axis=0)  ; error: ranks of concatenated tensors differ: [2, T] and []
  %17: f16[2, 2, T] = stack(tensors=[%0, %3])  ; error: shapes of stacked tensors differ: 2 and 3
  %18: f16[2, 2, T] = stack(tensors=[])  ; error: nothing to stack
  %19: f16[2, 2, T] = stack(tensors=[%0, %0], axis=3)  ; error: axis 3 is outside a tensor of rank 3
}

;;; turned around
graph "turned around"
  symbol T in 2..=64
  input %0 "x": f32[2, T]
  input %1 "t": int(T)
  input %2 "s": f32[]
{
  %3: f32[2, T] = roll(x=%0, shift=[1], axes=[0])
  %4: f32[2, T] = roll(x=%0, shift=[-1, %1], axes=[1, 0])
  %5: f32[2, T] = roll(x=%0, shift=[7], axes=[])
  %6: f32[2, T] = flip(x=%0, axes=[0, -1])
  %7: f32[2, T] = flip(x=%0, axes=[])
  %8: f32[] = flip(x=%2, axes=[0])
  %9: f32[2, T] = roll(x=%0, shift=[1, 2], axes=[0])  ; error: 2 shifts for 1 axes
}

;;; filled tensors
graph "filled tensors"
  symbol T in 2..=64
  input %0 "x": bf16[2, T]
  input %1 "t": int(T)
  input %2 "f": float
  input %3 "p": bool
{
  %4: f32[2, T] = full(shape=[2, %1], v=0.5, scalar_type=f32)
  %5: i64[] = full(shape=[], v=%1, scalar_type=i64)
  %6: bool[0] = full(shape=[0], v=%3, scalar_type=bool)
  %7: f16[3] = full(shape=[3], v=nan, scalar_type=f16)
  %8: bf16[2, T] = full_like(x=%0, v=-0.0)
  %9: i32[2, T] = full_like(x=%0, v=%2, scalar_type=i32)
  %10: f32[2] = full(shape=[-2], v=0.0, scalar_type=f32)  ; error: -2 is not a size
  %11: f32[2] = full(shape=[2], v=%0, scalar_type=f32)  ; error: %0 is not a scalar
  %12: bf16[2, T] = full_like(x=%0, v=%0)  ; error: %0 is not a scalar
  %13: f32[1] = full(shape=[%2], v=0.0, scalar_type=f32)  ; error: %2 is not an integer
}

;;; ranges
graph "ranges"
  symbol T in 2..=64
  symbol pos in i32
  symbol open in 0..=32
  symbol any in 0..
  symbol most in 0..=2147483647
  input %0 "t": int(T)
  input %1 "p": int(pos)
{
  %2: i32[5] = arange(start=0, stop=5, step=1)
  %3: i64[3] = arange(start=0, stop=5, step=2, scalar_type=i64)
  %4: f32[3] = arange(start=5, stop=0, step=-2, scalar_type=f32)
  %5: i32[0] = arange(start=5, stop=0, step=1)
  %6: i32[T] = arange(start=0, stop=%0, step=1)
  %7: int(T+pos) = add_int(a=%1, b=%0)
  %8: i32[T] = arange(start=%1, stop=%7, step=1)
  %9: i32[open] = arange(start=0, stop=%0, step=2)
  %10: i32[any] = arange(start=%0, stop=0, step=-1)
  %11: i32[most] = arange(start=0, stop=%1, step=1)
  %12: i32[5] = arange(start=0, stop=5, step=0)  ; error: a range with step 0
  %13: i32[5] = arange(start=-9223372036854775808, stop=9223372036854775807, step=1)  ; error: a size overflows 64 bits
}

;;; triangles
graph "triangles"
  symbol T in 2..=64
  input %0 "x": f32[2, T, 4]
  input %1 "v": f32[4]
  input %2 "t": int(T)
{
  %3: f32[3, 4] = tri(n=3, m=4, scalar_type=f32)
  %4: bool[T, T] = tri(n=%2, m=%2, k=-1, scalar_type=bool)
  %5: f32[2, T, 4] = tril(x=%0)
  %6: f32[2, T, 4] = triu(x=%0, k=1)
  %7: f32[4] = tril(x=%1)  ; error: x has rank 1; 2 or more is needed
  %8: f32[4] = triu(x=%1, k=-1)  ; error: x has rank 1; 2 or more is needed
  %9: f32[3, 4] = tri(n=3, m=-4, scalar_type=f32)  ; error: -4 is not a size
  %10: i32[3, 4] = tri(n=3, m=4, scalar_type=f32)  ; error: %10 is declared i32[3, 4], but the op gives f32[3, 4]
}
