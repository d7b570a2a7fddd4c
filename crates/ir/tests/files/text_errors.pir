; Texts that are refused, and where. Lines count from the case's name.

;;; no graph
; parse error: line 4, column 1: expected `graph`, found the end of the text


;;; a word that begins nothing
graph "x" inputs %0
; parse error: line 2, column 11: expected `symbol`, `input`, `constant`, `buffer`, `value` or `{`, found `inputs`

;;; a name without quotes
graph x {}
; parse error: line 2, column 7: expected a quoted string, found `x`

;;; a string that does not end
graph "x
{}
; parse error: line 2, column 7: this string has no closing quote

;;; an unknown escape
graph "ab\d" {}
; parse error: line 2, column 10: unknown escape in a string: use \", \\, \n, \r, \t or \u{...}

;;; a stray character
graph "x" { é }
; parse error: line 2, column 13: 'é' has no meaning here

;;; more after the end
graph "x" {}
}
; parse error: line 3, column 1: expected the end of the text, found `}`

;;; two graphs without init
graph "x" {}
graph "y" {}
; parse error: line 3, column 1: expected the end of the text, found `graph`

;;; an op that is not there
graph "x" {
  %0: f32[] = addd(a=%0, b=%0)
}
; parse error: line 3, column 15: there is no op `addd`

;;; a field that is not there
graph "x" {
  %0: f32[] = add(a=%0, c=%0)
}
; parse error: line 3, column 25: `add` has no field `c`; it has a, b

;;; a body among the fields
graph "x" {
  if(cond=1, then_chain_idx=0)
}
; parse error: line 3, column 14: `if` has no field `then_chain_idx`; it has cond

;;; a field twice
graph "x" {
  %0: f32[] = add(a=%0, a=%0)
}
; parse error: line 3, column 25: field `a` is written twice

;;; a field too few
graph "x" {
  %0: f32[] = add(a=%0)
}
; parse error: line 3, column 15: `add` needs its field `b`

;;; an axis is not 0 by itself
graph "x" {
  %0: f32[] = sort(x=%0)
}
; parse error: line 3, column 15: `sort` needs its field `axis`

;;; a body too few
graph "x" {
  if(cond=1) then {}
}
; parse error: line 3, column 3: `if` needs its field `else`

;;; a field without a name
graph "x" {
  %0: f32[] = exp(%0)
}
; parse error: line 3, column 19: expected the name of a field, found `%0`

;;; a field of another kind
graph "x" {
  %0: f32[] = sort(x=%0, axis=%0)
}
; parse error: line 3, column 31: expected an integer of 32 bits, found `%0`

;;; an integer too large
graph "x" {
  %0: f32[] = sort(x=%0, axis=2147483648)
}
; parse error: line 3, column 31: 2147483648 is not an integer of 32 bits

;;; a fraction for an integer
graph "x" {
  %0: f32[] = sort(x=%0, axis=1.5)
}
; parse error: line 3, column 31: 1.5 is not an integer of 32 bits

;;; a float too large
graph "x" {
  %0: f32[] = rms_norm(x=%0, eps=1e39)
}
; parse error: line 3, column 34: 1e39 is not an f32

;;; a payload that no NaN has
graph "x" {
  %0: f32[] = rms_norm(x=%0, eps=nan(0))
}
; parse error: line 3, column 34: this payload of a NaN is not an f32

;;; a dtype that is not there
graph "x" {
  %0: f32[] = as_type(x=%0, scalar_type=f31)
}
; parse error: line 3, column 41: expected an element type such as f32, found `f31`

;;; a tensor or an integer, but which
graph "x" {
  %0: f32[] = rope(x=%0, dims=2, offset=3)
}
; parse error: line 3, column 41: expected a tensor such as %12 or an integer such as int(%12), found `3`

;;; a list without its end
graph "x" {
  %0: f32[] = transpose(x=%0, perm=[0, 1
}
; parse error: line 4, column 1: expected `,` or `]`, found `}`

;;; a type that is not there
graph "x" {
  %0: f31[] = noop()
}
; parse error: line 3, column 7: expected a type such as f32[2, T], int(T), float or bool, found `f31`

;;; a symbol that is not declared
graph "x"
  input %0 "x": f32[T]
{}
; parse error: line 3, column 21: there is no symbol T

;;; a number that no symbol has
graph "x"
  symbol T in 0..
  input %0 "x": f32[#1]
{}
; parse error: line 4, column 21: there is no symbol #1

;;; a symbol twice
graph "x"
  symbol T in 0..
  symbol T in 0..
{}
; parse error: line 4, column 10: symbol T is declared twice: write it as `#number "name"`

;;; a symbol out of order
graph "x"
  symbol #1 "T" in 0..
{}
; parse error: line 3, column 10: symbol #1 is declared where #0 is due

;;; a symbol without a name
graph "x"
  symbol #0 "" in 0..
{}
; parse error: line 3, column 13: expected a name that is not empty, found a string

;;; a symbol without a range
graph "x"
  symbol T
{}
; parse error: line 4, column 1: expected `in` and a range, found `{`

;;; a size that overflows
graph "x"
  symbol T in 0..
  input %0 "x": f32[9223372036854775807*T+T]
{}
; parse error: line 4, column 21: this expression is not an expression over integers of 64 bits

;;; a product of symbols
graph "x"
  symbol T in 0..
  input %0 "x": f32[T*T]
{}
; parse error: line 4, column 22: expected `,` or `]`, found `*`

;;; a value with two types
graph "x"
  input %0 "x": f32[2]
  input %0 "y": f32[3]
{}
; parse error: line 4, column 9: %0 has two types

;;; a value without a type
graph "x" {
  %0: f32[] = exp(x=%1)
}
; parse error: line 3, column 15: %1 has no type: no input, constant, buffer, node, block or `value` line defines it

;;; a result without a type
graph "x" {
}
output %3 "y": f32[]
; parse error: line 4, column 8: %3 has no type: no input, constant, buffer, node, block or `value` line defines it

;;; numbers with a gap
graph "x"
  input %0 "x": f32[2]
  input %4294967295 "y": f32[2]
{}
; parse error: line 7, column 1: the number of %4294967295 leaves a gap: the 2 values here are numbered from %0

;;; a number that no value can have
graph "x"
  input %4294967296 "y": f32[2]
{}
; parse error: line 3, column 9: %4294967296 is not a value such as %12

;;; results without types
graph "x" {
  %0 = exp(x=%0)
}
; parse error: line 3, column 6: expected `:`, found `=`

;;; a body that does not end
graph "x" {
  if(cond=1) then { yield
; parse error: line 5, column 1: expected a value such as %12, found the end of the text

;;; nodes after what a block yields
graph "x" {
  yield %0
  noop()
}
; parse error: line 4, column 3: expected `}`, found `noop`
