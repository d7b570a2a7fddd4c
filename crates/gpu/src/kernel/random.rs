//! MLX's random bits of a key: threefry-2x32 over a counter. A thread makes the two words of a hash, of which one lies in each half
//! of the result.
//!
//! Parameters: words of the result, the first of them, the halves of the key.

use super::source::{Source, THREADS, param};

pub(super) fn text() -> String {
    let mut source = Source::new();
    source.writes("out");
    let mut rounds = String::new();
    for block in 0..5u32 {
        for by in [[13, 15, 26, 6], [17, 29, 16, 24]][block as usize % 2] {
            rounds += &format!("x += y;\ny = (y << {by}u) | (y >> {}u);\ny ^= x;\n", 32 - by);
        }
        rounds +=
            &format!("x += keys[{}];\ny += keys[{}] + {}u;\n", (block + 1) % 3, (block + 2) % 3, block + 1);
    }
    source.main(&format!(
        "let j = group * {THREADS}u + thread;\nlet half = {words} / 2u;\nlet second = half + {words} % 2u;\n\
         if j >= second {{ return; }}\n\
         let keys = vec3<u32>({key}, {other}, {key} ^ {other} ^ 0x1bd11bdau);\n\
         var x = j + keys[0];\n\
         var y = select(0u, second + j, j < half) + keys[1];\n{rounds}\
         out[{first} + j] = x;\nif j < half {{ out[{first} + second + j] = y; }}",
        words = param(0),
        first = param(1),
        key = param(2),
        other = param(3),
    ));
    source.finish()
}
