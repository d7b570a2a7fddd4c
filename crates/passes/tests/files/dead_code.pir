; Nodes whose results nobody uses.

;;; a chain, and the constant that only it reads
graph "g"
  input %0 "x": f32[2]
  constant %1 "w": f32[2]
{
  %2: f32[2] = add(a=%0, b=%1)
  %3: f32[2] = exp(x=%2)
  %4: f32[2] = sin(x=%0)
}
output %4 "y": f32[2]

; becomes
graph "g"
  input %0 "x": f32[2]
{
  %1: f32[2] = sin(x=%0)
}
output %1 "y": f32[2]

;;; within a branch
graph "g"
  input %0 "x": f32[2]
  input %1 "c": int(1)
{
  %2: f32[2] = cos(x=%0)
  %3: f32[2] = if(cond=%1) then {
    %4: f32[2] = exp(x=%2)
    %5: f32[2] = sin(x=%4)
    yield %0
  } else {
    yield %0
  }
}
output %3 "y": f32[2]

; becomes
graph "g"
  input %0 "x": f32[2]
  input %1 "c": int(1)
{
  %2: f32[2] = if(cond=%1) then {
    yield %0
  } else {
    yield %0
  }
}
output %2 "y": f32[2]

;;; state and effects keep their nodes
graph "g"
  input %0 "x": f32[2]
  buffer %1 "kept": f32[2] -> %2
{
  %2: f32[2] = add(a=%0, b=%1)
  %3: u32[2] = random_bits(shape=[2])
}
; stays

