; What the verifier reports besides the rules of ops: all of it, each error once.

;;; nothing is wrong
graph "good"
  symbol T in 2..=64
  input %0 "x": f32[1, T]
  constant %1 "w": f32[4]
  buffer %2 "state": f32[1, 4] -> %3
{
  %3: f32[1, 4] = add(a=%1, b=%2)
}
output %3 "y": f16[1, 4]

;;; used before it is defined
graph "order"
  input %0 "x": f32[2]
{
  %1: f32[2] = exp(x=%2)  ; error: %2 is used before it is defined
  %2: f32[2] = exp(x=%0)
}

;;; used, but never defined
graph "holes"
  value %0: f32[2]
  value %1: f32[2]
{
  %2: f32[2] = add(a=%0, b=%1)
  ; error: %0 is used, but nothing defines it
  ; error: %1 is used, but nothing defines it
}
output %1 "y": f32[2]  ; error: %1 is used, but nothing defines it

;;; its own operand
graph "loop"
{
  %0: f32[2] = exp(x=%0)  ; error: %0 is used before it is defined
}

;;; defined twice
graph "twice"
  input %0 "x": f32[2]
  input %0 "y": f32[2]  ; error: %0 is defined twice
{
  %1: f32[2] = exp(x=%0)
  %1: f32[2] = abs(x=%0)  ; error: %1 is defined twice
}

;;; defined twice by one node and across blocks
graph "twice"
  input %0 "x": f32[4]
  input %1 "c": int(1)
{
  %2: f32[2], %2: f32[2] = split(x=%0, sizes=[2], axis=0)  ; error: %2 is defined twice
  %3: f32[4] = if(cond=%1) then {
    %4: f32[4] = exp(x=%0)
    yield %4
  } else {
    %4: f32[4] = abs(x=%0)  ; error: %4 is defined twice
    yield %4
    ; error: %4 is used outside the block that defines it
  }
}

;;; used outside its block
graph "scopes"
  input %0 "x": f32[4]
  input %1 "c": int(1)
{
  %2: f32[4] = if(cond=%1) then {
    %3: f32[4] = exp(x=%0)
    yield %3
  } else {
    %4: f32[4] = exp(x=%3)  ; error: %3 is used outside the block that defines it
    yield %4
  }
  %5: f32[4] = add(a=%3, b=%4)
  ; error: %3 is used outside the block that defines it
  ; error: %4 is used outside the block that defines it
}
output %3 "y": f32[4]  ; error: %3 is used outside the block that defines it

;;; an inner block sees the outer ones
graph "captures"
  input %0 "xs": f32[2, 3]
  input %1 "c": int(1)
{
  %2: f32[2] = sum(x=%0, axes=[1])
  %3: f32[2, 3] = scan(originals=[%0], carry=[]) body (%4: f32[2]) {
    %5: f32[2] = add(a=%4, b=%2)
    %6: f32[2] = if(cond=%1) then {
      %7: f32[2] = multiply(a=%5, b=%2)
      yield %7
    } else {
      yield %4
    }
    yield %6
  }
}
output %3 "y": f32[2, 3]

;;; a result of a branch is not known inside it
graph "inside"
  input %0 "c": int(1)
{
  %1: f32[2] = if(cond=%0) then {  ; error: %1 is used before it is defined
    yield %1
  } else {
    %2: f32[2] = full(shape=[2], v=0.0, scalar_type=f32)
    yield %2
  }
}

;;; one wrong node does not hide the next
graph "many"
  input %0 "x": f32[2, 3]
  input %1 "y": f32[4]
{
  %2: f32[2, 3] = add(a=%0, b=%1)  ; error: shapes that should broadcast differ: [2, 3] and [4]
  %3: f32[2, 3] = exp(x=%2)
  %4: f16[2, 3] = exp(x=%3)  ; error: %4 is declared f16[2, 3], but the op gives f32[2, 3]
  %5: f16[3, 3] = exp(x=%4)  ; error: %5 is declared f16[3, 3], but the op gives f16[2, 3]
  %6: f16[2, 3] = transpose(x=%5, perm=[1])  ; error: [1] is not a permutation of 2 axes
}
output %6 "z": f32[6]  ; error: declared f32[6], but %6 is f16[2, 3]

;;; sizes that may be equal are let through
; types: undecided
graph "undecided"
  symbol T in 2..=64
  symbol S in 0..
  input %0 "x": f32[T]
  input %1 "y": f32[S]
{
  %2: f32[4] = exp(x=%0)
  %3: f32[S] = exp(x=%0)
  %4: f32[7] = add(a=%0, b=%1)
  %5: f32[65] = exp(x=%0)  ; error: %5 is declared f32[65], but the op gives f32[T]
  %6: f32[T+1] = exp(x=%0)  ; error: %6 is declared f32[T+1], but the op gives f32[T]
}

;;; outputs convert elements, not shapes
graph "outputs"
  symbol T in 2..=64
  input %0 "x": f32[2, T]
  input %1 "n": int(T)
{}
output %0 "same": f32[2, T]
output %0 "converted": i64[2, T]
output %0 "perhaps": f32[2, 7]
output %0 "rank": f32[2]  ; error: declared f32[2], but %0 is f32[2, T]
output %0 "size": f32[3, T]  ; error: declared f32[3, T], but %0 is f32[2, T]
output %0 "beyond": f32[2, 65]  ; error: declared f32[2, 65], but %0 is f32[2, T]
output %0 "kind": int(T)  ; error: declared int(T), but %0 is f32[2, T]
output %1 "count": int(T)
output %1 "other": int(T+1)  ; error: declared int(T+1), but %1 is int(T)
output %1 "tensor": f32[]  ; error: declared f32[], but %1 is int(T)

;;; state keeps its type
graph "state"
  input %0 "x": f16[4]
  input %1 "y": f32[5]
  input %2 "z": f32[4]
  input %3 "n": int(4)
  buffer %4 "a": f32[4] -> %0  ; error: declared f32[4], but %0 is f16[4]
  buffer %5 "b": f32[4] -> %1  ; error: declared f32[4], but %1 is f32[5]
  buffer %6 "c": f32[4] -> %2
  buffer %7 "d": f32[4] -> %3  ; error: declared f32[4], but %3 is int(4)
  buffer %8 "e": f32[4]
{}

;;; names are taken once
graph "names"
  input %0 "x": f32[4]
  input %1 "x": f32[4]
  constant %2 "x": f32[4]
  constant %3 "w": f32[4]
  constant %4 "w": f32[4]  ; error: the constant "w" is declared twice
  buffer %5 "x": f32[4]
  buffer %6 "x": f32[4]  ; error: the buffer "x" is declared twice
{}

;;; constants and buffers are tensors
graph "kinds"
  constant %0 "w": int(4)  ; error: constants and buffers are tensors
  buffer %1 "b": float  ; error: constants and buffers are tensors
{}

;;; sizes and ranges that cannot be
graph "ranges"
  symbol T in 2..=1  ; error: no number is in this range
  symbol n in 0..=4
  input %0 "x": f32[-1]
  ; error: a size is negative
  input %1 "y": f32[n-5]
  ; error: a size is negative
  input %2 "z": f32[n-4]
  input %3 "i": int(-1)
{}

;;; scalars and tensors are told apart in every field
graph "kinds"
  input %0 "x": f32[4]
  input %1 "n": int(4)
  input %2 "f": float
{
  %3: f32[4] = add(a=%0, b=%1)  ; error: %1 is not a tensor
  %4: f32[4] = concatenate(tensors=[%0, %1], axis=0)  ; error: %1 is not a tensor
  %5: f32[4] = rms_norm(x=%0, weight=%2, eps=0.0)  ; error: %2 is not a tensor
  %6: f32[4] = reshape(x=%0, shape=[%0])  ; error: %0 is not a scalar
  %7: u32[4] = random_bits(shape=[4], seed=%0)  ; error: %0 is not a scalar
}

;;; a module: init makes constants of main
init graph "init"
  constant %0 "zero_points": i8[4]
{
  %1: f32[4] = as_type(x=%0, scalar_type=f32)
}
output %1 "biases": f32[4]
graph "main"
  symbol T in 2..=64
  input %0 "x": f32[T, 4]
  constant %1 "biases": f32[4]
{
  %2: f32[T, 4] = add(a=%0, b=%1)
}
output %2 "y": f32[T, 4]

;;; a module whose graphs do not meet
init graph "init"
  input %0 "x": f32[4]  ; error: nothing can feed an input at load time
  constant %1 "w": f32[5]
{}
output %1 "dtype": f32[5]  ; error: main declares this constant f16[5]
output %1 "size": f32[5]  ; error: main declares this constant f32[4]
output %1 "rank": f32[5]  ; error: main declares this constant f32[5, 1]
output %1 "twice": f32[5]
output %1 "twice": f32[5]  ; error: the constant "twice" is declared twice
output %1 "unknown": f32[5]
graph "main"
  symbol T in 0..
  constant %0 "dtype": f16[5]
  constant %1 "size": f32[4]
  constant %2 "rank": f32[5, 1]
  constant %3 "twice": f32[T]
{
  %4: f32[5] = exp(x=%0)  ; error: %4 is declared f32[5], but the op gives f16[5]
}
