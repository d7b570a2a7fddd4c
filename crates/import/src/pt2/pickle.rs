//! A closed interpreter of pickles: the opcodes that Python writes for protocols 2 to 5, over a heap of plain
//! values.
//!
//! A pickle is a program that may call anything Python can import. Here it can name only what `rebuild`
//! lists, and "calling" one of those builds a value of ours; nothing else exists, so nothing else can happen.
//! Each step makes at most one object, steps are bounded, and objects refer to each other by number, so that
//! neither cycles nor sharing cost more than they say.

use super::error::{Pt2Error, Result, clip};
use super::rebuild::{Global, Heap, Id, Object};
use pteron_format::Limits;
use pteron_tensor::Bytes;
use std::collections::HashMap;

/// Runs a pickle and gives back its heap with the result's number. `storage` finds a storage's bytes by key.
pub(super) fn run<'a>(
    name: &'a str,
    pickle: &[u8],
    limits: &'a Limits,
    storage: &'a dyn Fn(&str) -> Option<Bytes>,
) -> Result<(Heap<'a>, Id)> {
    let mut machine = Machine {
        name,
        pickle,
        at: 0,
        op: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        heap: Heap::new(limits, storage),
    };
    for _ in 0..limits.pickle_steps {
        if let Some(result) = machine.step()? {
            return Ok((machine.heap, result));
        }
    }
    Err(machine.error(format!("more steps than the limit `pickle_steps` of {}", limits.pickle_steps)))
}

struct Machine<'a, 'p> {
    name: &'a str,
    pickle: &'p [u8],
    at: usize,
    /// Byte of the opcode that is being run.
    op: usize,
    stack: Vec<Id>,
    /// Where the stack stood at each open mark.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    heap: Heap<'a>,
}

impl<'p> Machine<'_, 'p> {
    fn error(&self, problem: impl Into<String>) -> Pt2Error {
        Pt2Error::Pickle { name: clip(self.name), offset: self.op, problem: problem.into() }
    }

    /// Runs one opcode; gives the result when that was the last.
    fn step(&mut self) -> Result<Option<Id>> {
        self.op = self.at;
        let [opcode] = self.array()?;
        match opcode {
            0x80 => {
                let [protocol] = self.array()?;
                if !(2..=5).contains(&protocol) {
                    return Err(self.error(format!("protocol {protocol}; 2 to 5 are known")));
                }
            }
            0x95 => drop(self.array::<8>()?), // the frame's length, of use to streams only
            b'.' => return self.pop().map(Some),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.since_mark()?),
            b'2' => {
                let top = self.pop()?;
                self.stack.extend([top, top]);
            }
            b'N' => self.push(Object::None),
            0x88 => self.push(Object::Bool(true)),
            0x89 => self.push(Object::Bool(false)),
            b'K' => {
                let [value] = self.array()?;
                self.push(Object::Int(value.into()));
            }
            b'M' => {
                let value = u16::from_le_bytes(self.array()?);
                self.push(Object::Int(value.into()));
            }
            b'J' => {
                let value = i32::from_le_bytes(self.array()?);
                self.push(Object::Int(value.into()));
            }
            0x8a => self.long()?,
            b'G' => {
                let value = f64::from_be_bytes(self.array()?);
                self.push(Object::Float(value));
            }
            0x8c => {
                let [len] = self.array()?;
                self.text(len.into())?;
            }
            b'X' => {
                let len = u32::from_le_bytes(self.array()?);
                self.text(len.into())?;
            }
            0x8d => {
                let len = u64::from_le_bytes(self.array()?);
                self.text(len)?;
            }
            b')' => self.push(Object::Tuple(Vec::new())),
            0x85..=0x87 => {
                let count = usize::from(opcode - 0x84);
                let items = self.take(count)?;
                self.push(Object::Tuple(items));
            }
            b't' => {
                let items = self.since_mark()?;
                self.push(Object::Tuple(items));
            }
            b']' => self.push(Object::List(Vec::new())),
            b'a' => {
                let items = self.take(1)?;
                self.append(items)?;
            }
            b'e' => {
                let items = self.since_mark()?;
                self.append(items)?;
            }
            b'}' => self.push(Object::Dict(Vec::new())),
            b's' => {
                let items = self.take(2)?;
                self.set_items(items)?;
            }
            b'u' => {
                let items = self.since_mark()?;
                self.set_items(items)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(module, name)?;
            }
            0x93 => {
                let pair = self.take(2)?;
                let both = (self.heap.text(pair[0]), self.heap.text(pair[1]));
                let (Some(module), Some(name)) = both else {
                    return Err(self.error("a global is named by something else than text"));
                };
                let (module, name) = (module.to_owned(), name.to_owned());
                self.global(&module, &name)?;
            }
            b'R' => {
                let pair = self.take(2)?;
                let built = self.heap.call(pair[0], pair[1]).map_err(|problem| self.error(problem))?;
                self.push(built);
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = self.heap.persistent(id).map_err(|problem| self.error(problem))?;
                self.push(storage);
            }
            b'q' => {
                let [slot] = self.array()?;
                self.remember(slot.into())?;
            }
            b'r' => {
                let slot = u32::from_le_bytes(self.array()?);
                self.remember(slot)?;
            }
            0x94 => self.remember(self.memo.len() as u32)?,
            b'h' => {
                let [slot] = self.array()?;
                self.recall(slot.into())?;
            }
            b'j' => {
                let slot = u32::from_le_bytes(self.array()?);
                self.recall(slot)?;
            }
            _ => return Err(self.error(format!("opcode {opcode:#04x}, which no pickle of a tensor needs"))),
        }
        Ok(None)
    }

    fn bytes(&mut self, len: u64) -> Result<&'p [u8]> {
        let end = usize::try_from(len).ok().and_then(|len| self.at.checked_add(len));
        let bytes = end.and_then(|end| self.pickle.get(self.at..end));
        let bytes = bytes.ok_or_else(|| self.error("the pickle is cut off"))?;
        self.at += bytes.len();
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.bytes(N as u64)?;
        bytes.try_into().map_err(|_| self.error("the pickle is cut off"))
    }

    /// A line of text without its end.
    fn line(&mut self) -> Result<&'p str> {
        let rest = &self.pickle[self.at..];
        let len = rest.iter().position(|&byte| byte == b'\n');
        let len = len.ok_or_else(|| self.error("the pickle is cut off"))?;
        self.at += len + 1;
        std::str::from_utf8(&rest[..len]).map_err(|_| self.error("a name is not UTF-8"))
    }

    fn text(&mut self, len: u64) -> Result<()> {
        let bytes = self.bytes(len)?;
        let text = std::str::from_utf8(bytes).map_err(|_| self.error("a text is not UTF-8"))?;
        self.push(Object::Text(text.into()));
        Ok(())
    }

    /// An integer of any length; ours end at 64 bits.
    fn long(&mut self) -> Result<()> {
        let [len] = self.array()?;
        let bytes = self.bytes(len.into())?;
        if bytes.len() > 8 {
            return Err(self.error("an integer has more than 64 bits"));
        }
        let negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
        let mut wide = [if negative { 0xff } else { 0 }; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        self.push(Object::Int(i64::from_le_bytes(wide)));
        Ok(())
    }

    fn push(&mut self, object: Object) {
        let id = self.heap.add(object);
        self.stack.push(id);
    }

    /// Takes the last values, first pushed first; none from below an open mark.
    fn take(&mut self, count: usize) -> Result<Vec<Id>> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let start = self.stack.len().checked_sub(count).filter(|&start| start >= floor);
        let start = start.ok_or_else(|| self.error("the stack is empty"))?;
        Ok(self.stack.split_off(start))
    }

    fn pop(&mut self) -> Result<Id> {
        Ok(self.take(1)?[0])
    }

    fn since_mark(&mut self) -> Result<Vec<Id>> {
        let mark = self.marks.pop().ok_or_else(|| self.error("there is no mark"))?;
        Ok(self.stack.split_off(mark))
    }

    fn top(&self) -> Result<Id> {
        self.stack.last().copied().ok_or_else(|| self.error("the stack is empty"))
    }

    fn append(&mut self, items: Vec<Id>) -> Result<()> {
        let top = self.top()?;
        match self.heap.get_mut(top) {
            Object::List(list) => list.extend(items),
            _ => return Err(self.error("appends to what is no list")),
        }
        Ok(())
    }

    fn set_items(&mut self, items: Vec<Id>) -> Result<()> {
        let top = self.top()?;
        if !items.len().is_multiple_of(2) {
            return Err(self.error("a key has no value"));
        }
        match self.heap.get_mut(top) {
            Object::Dict(entries) => entries.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1]))),
            _ => return Err(self.error("sets an item of what is no dict")),
        }
        Ok(())
    }

    fn global(&mut self, module: &str, name: &str) -> Result<()> {
        let global = Global::find(module, name).ok_or_else(|| Pt2Error::Global {
            name: clip(self.name),
            global: clip(&format!("{module}.{name}")),
        })?;
        self.push(Object::Global(global));
        Ok(())
    }

    fn remember(&mut self, slot: u32) -> Result<()> {
        let top = self.top()?;
        self.memo.insert(slot, top);
        Ok(())
    }

    fn recall(&mut self, slot: u32) -> Result<()> {
        let id = *self.memo.get(&slot).ok_or_else(|| self.error(format!("nothing was kept under {slot}")))?;
        self.stack.push(id);
        Ok(())
    }
}
