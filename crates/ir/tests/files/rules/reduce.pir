; Reductions, running sums, sorting. No axes, or an empty list, means all axes.

;;; axes, kept or dropped
graph "axes, kept or dropped"
  symbol T in 2..=64
  input %0 "x": f32[2, T, 4]
{
  %1: f32[] = sum(x=%0)
  %2: f32[] = sum(x=%0, axes=[])
  %3: f32[1, 1, 1] = sum(x=%0, keepdims=true)
  %4: f32[2, 4] = sum(x=%0, axes=[1])
  %5: f32[2, 1, 4] = sum(x=%0, axes=[-2], keepdims=true)
  %6: f32[T] = sum(x=%0, axes=[0, -1])
  %7: f32[T] = sum(x=%0, axes=[-1, 0])
}

;;; every reduction of floats
graph "every reduction of floats"
  symbol T in 2..=64
  input %0 "x": bf16[2, T]
{
  %1: bf16[T] = sum(x=%0, axes=[0])
  %2: bf16[T] = prod(x=%0, axes=[0])
  %3: bf16[T] = mean(x=%0, axes=[0])
  %4: bf16[T] = var(x=%0, axes=[0])
  %5: bf16[T] = var(x=%0, axes=[0], ddof=1)
  %6: bf16[T] = std(x=%0, axes=[0], ddof=1)
  %7: bf16[T] = log_sum_exp(x=%0, axes=[0])
  %8: bf16[] = log_sum_exp(x=%0, axes=[])
  %9: bf16[T] = max(x=%0, axes=[0])
  %10: bf16[T] = min(x=%0, axes=[0])
  %11: bf16[T] = median(x=%0, axes=[0])
  %12: bool[T] = any(x=%0, axes=[0])
  %13: bool[T] = all(x=%0, axes=[0])
  %14: u32[T] = argmax(x=%0, axis=0)
  %15: u32[1, T] = argmin(x=%0, axis=0, keepdims=true)
}

;;; sums and products of small integers widen
graph "sums and products of small integers widen"
  input %0 "p": bool[3]
  input %1 "i8": i8[3]
  input %2 "i16": i16[3]
  input %3 "u8": u8[3]
  input %4 "u16": u16[3]
  input %5 "i64": i64[3]
  input %6 "u64": u64[3]
{
  %7: i32[] = sum(x=%0)
  %8: i32[] = sum(x=%1)
  %9: i32[] = prod(x=%2)
  %10: u32[] = sum(x=%3)
  %11: u32[] = prod(x=%4)
  %12: i64[] = sum(x=%5)
  %13: u64[] = prod(x=%6)
}

;;; means of integers are f32, extremes keep the dtype
graph "means of integers are f32, extremes keep the dtype"
  input %0 "n": i8[3, 2]
  input %1 "p": bool[3]
{
  %2: f32[] = mean(x=%0)
  %3: f32[3] = var(x=%0, axes=[1])
  %4: f32[] = std(x=%0)
  %5: f32[] = log_sum_exp(x=%0)
  %6: f32[] = median(x=%0)
  %7: i8[2] = max(x=%0, axes=[0])
  %8: i8[] = min(x=%0)
  %9: bool[] = max(x=%1)
  %10: bool[] = any(x=%0)
  %11: u32[3] = argmax(x=%0, axis=-1)
}

;;; median of floats and integers
graph "median of floats and integers"
  symbol T in 2..=64
  input %0 "x": f16[2, T]
  input %1 "n": i64[2, T]
{
  %2: f16[] = median(x=%0)
  %3: f16[2] = median(x=%0, axes=[1])
  %4: f16[2, 1] = median(x=%0, axes=[-1], keepdims=true)
  %5: f32[1, 1] = median(x=%1, keepdims=true)
}

;;; sums of nothing exist, extremes of nothing do not
graph "sums of nothing exist, extremes of nothing do not"
  input %0 "x": f32[0, 3]
{
  %1: f32[3] = sum(x=%0, axes=[0])
  %2: f32[] = prod(x=%0)
  %3: f32[3] = mean(x=%0, axes=[0])
  %4: bool[] = any(x=%0)
  %5: bool[3] = all(x=%0, axes=[0])
  %6: f32[0] = max(x=%0, axes=[1])
  %7: u32[0] = argmax(x=%0, axis=1)
  %8: f32[3] = max(x=%0, axes=[0])  ; error: there is no element to choose in [0, 3]
  %9: f32[] = min(x=%0)  ; error: there is no element to choose in [0, 3]
  %10: f32[3] = median(x=%0, axes=[0])  ; error: there is no element to choose in [0, 3]
  %11: u32[3] = argmax(x=%0, axis=0)  ; error: there is no element to choose in [0, 3]
  %12: u32[3] = argmin(x=%0, axis=0)  ; error: there is no element to choose in [0, 3]
}

;;; a tensor of rank 0 counts as one element along axis 0
graph "a tensor of rank 0 counts as one element along axis 0"
  input %0 "x": f32[]
{
  %1: f32[] = sum(x=%0, axes=[0])
  %2: f32[] = max(x=%0, axes=[-1])
  %3: f32[] = sum(x=%0)
  %4: f32[] = softmax(x=%0, axis=-1)
  %5: f32[] = cumsum(x=%0, axis=0)
  %6: f32[] = sort(x=%0, axis=0)
  %7: u32[] = argsort(x=%0, axis=-1)
  %8: u32[] = argmax(x=%0, axis=0)
  %9: f32[] = sum(x=%0, axes=[1])  ; error: axis 1 is outside a tensor of rank 0
}

;;; along one axis
graph "along one axis"
  symbol T in 2..=64
  input %0 "x": f16[T, 4]
  input %1 "n": i8[T, 4]
  input %2 "p": bool[4]
{
  %3: f16[T, 4] = softmax(x=%0, axis=-1)
  %4: f16[T, 4] = softmax(x=%0, axis=0, precise=true)
  %5: f32[T, 4] = softmax(x=%1, axis=1)
  %6: f16[T, 4] = cumsum(x=%0, axis=0)
  %7: i8[T, 4] = cumsum(x=%1, axis=1, reverse=true, inclusive=false)
  %8: i32[4] = cumsum(x=%2, axis=0)
  %9: f16[T, 4] = sort(x=%0, axis=-1)
  %10: i8[T, 4] = sort(x=%1, axis=0)
  %11: u32[T, 4] = argsort(x=%0, axis=1)
  %12: f16[T, 4] = partition(x=%0, kth=3, axis=1)
  %13: f16[T, 4] = partition(x=%0, kth=-4, axis=-1)
  %14: f16[T, 4] = partition(x=%0, kth=100, axis=0)
  %15: u32[T, 4] = arg_partition(x=%1, kth=0, axis=1)
}

;;; the element to partition by may be known later
graph "the element to partition by may be known later"
  symbol n in i32
  input %0 "x": f32[4]
  input %1 "kth": int(n)
{
  %2: f32[4] = partition(x=%0, kth=%1, axis=0)
  %3: u32[4] = arg_partition(x=%0, kth=%1, axis=0)
}

;;; refused
graph "refused"
  input %0 "x": f32[2, 3]
{
  %1: f32[2] = sum(x=%0, axes=[2])  ; error: axis 2 is outside a tensor of rank 2
  %2: f32[2] = prod(x=%0, axes=[-3])  ; error: axis -3 is outside a tensor of rank 2
  %3: f32[2] = mean(x=%0, axes=[1, 1])  ; error: axis 1 is reduced twice
  %4: f32[2] = var(x=%0, axes=[1, -1])  ; error: axis -1 is reduced twice
  %5: f32[2] = std(x=%0, axes=[2])  ; error: axis 2 is outside a tensor of rank 2
  %6: f32[2] = log_sum_exp(x=%0, axes=[2])  ; error: axis 2 is outside a tensor of rank 2
  %7: f32[2] = max(x=%0, axes=[2])  ; error: axis 2 is outside a tensor of rank 2
  %8: f32[2] = median(x=%0, axes=[2])  ; error: axis 2 is outside a tensor of rank 2
  %9: bool[2] = any(x=%0, axes=[2])  ; error: axis 2 is outside a tensor of rank 2
  %10: bool[2] = all(x=%0, axes=[2])  ; error: axis 2 is outside a tensor of rank 2
  %11: u32[2] = argmax(x=%0, axis=2)  ; error: axis 2 is outside a tensor of rank 2
  %12: f32[2, 3] = softmax(x=%0, axis=2)  ; error: axis 2 is outside a tensor of rank 2
  %13: f32[2, 3] = cumsum(x=%0, axis=-3)  ; error: axis -3 is outside a tensor of rank 2
  %14: f32[2, 3] = sort(x=%0, axis=2)  ; error: axis 2 is outside a tensor of rank 2
  %15: u32[2, 3] = argsort(x=%0, axis=2)  ; error: axis 2 is outside a tensor of rank 2
  %16: f32[2, 3] = partition(x=%0, kth=3, axis=1)  ; error: there is no element 3 along an axis of size 3
  %17: f32[2, 3] = partition(x=%0, kth=-4, axis=1)  ; error: there is no element -4 along an axis of size 3
  %18: u32[2, 3] = arg_partition(x=%0, kth=2, axis=0)  ; error: there is no element 2 along an axis of size 2
  %19: i64[2] = argmax(x=%0, axis=1)  ; error: %19 is declared i64[2], but the op gives u32[2]
}
