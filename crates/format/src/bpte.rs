//! `.bpte` bundled programs: a whole `.pte` together with inputs and expected outputs to test it by.
//!
//! Read only. The program and all test data are borrowed from the file.

use std::path::Path;

use pteron_tensor::Bytes;

use crate::flatbuffer::{Buffer, Builder, Offset, Table, TableFields};
use crate::map::{MappedFile, shared};
use crate::mirror::{
    Blob, Field, List, Mirror, Source, Text, empty_union, mirror_table, read_table, write_single, write_union,
};
use crate::pte::{Pte, ScalarType};
use crate::{FormatError, Identifier, Limits, Place, Result};

const IDENTIFIER: [u8; 4] = *b"BP08";
const LEAST_FILE: usize = 8;
/// What ExecuTorch 1.5.1 writes. Lower numbers are read too: the identifier says which tables there are.
const NEWEST: u32 = 2;

mirror_table! {
    /// The root of a bundled program.
    pub struct BundledProgram {
        /// Schema version.
        0 version: u32,
        /// Tests, by method.
        1 method_test_suites: List<MethodTestSuite>,
        /// A whole `.pte` file.
        2 program: Blob<32>,
    }

    /// The tests of one method.
    pub struct MethodTestSuite {
        /// The method.
        0 method_name: Text,
        /// Its tests.
        1 test_cases: List<MethodTestCase>,
    }

    /// One test.
    pub struct MethodTestCase {
        /// What to call the method with.
        0 inputs: List<TestValue>,
        /// What it should give.
        1 expected_outputs: List<TestValue>,
    }

    /// A tensor with its bytes.
    pub struct TestTensor {
        /// The element type.
        0 scalar_type: ScalarType,
        /// The shape.
        1 sizes: List<i32>,
        /// The elements, as `dim_order` lays them out.
        2 data: Blob<16>,
        /// Dimensions from outer to inner in memory.
        3 dim_order: List<u8>,
    }
}

/// One input or output of a test.
#[derive(Clone, Debug, PartialEq)]
pub enum TestValue {
    /// A tensor.
    Tensor(TestTensor),
    /// An integer.
    Int(i64),
    /// A bool.
    Bool(bool),
    /// A float.
    Double(f64),
}

impl Mirror for TestValue {
    const NAME: &'static str = "Value";
    const SLOTS: u16 = 2;

    fn read(source: &Source<'_>, table: &Table<'_>) -> Result<TestValue> {
        let (tag, member) = table.union(0, "val")?.ok_or_else(|| empty_union(table, "val"))?;
        Ok(match tag {
            1 => TestValue::Tensor(read_tensor(source, &member)?),
            2 => TestValue::Int(Field::read(source, &member, 0, "int_val")?),
            3 => TestValue::Bool(Field::read(source, &member, 0, "bool_val")?),
            4 => TestValue::Double(Field::read(source, &member, 0, "double_val")?),
            tag => {
                let (place, union_name) = (table.place("val"), "ValueUnion");
                return Err(FormatError::UnknownTag { place, union_name, tag, known: 4 });
            }
        })
    }

    fn write(&self, builder: &mut Builder) -> Offset {
        let (tag, member) = match self {
            TestValue::Tensor(tensor) => (1, tensor.write(builder)),
            TestValue::Int(value) => (2, write_single(builder, value)),
            TestValue::Bool(value) => (3, write_single(builder, value)),
            TestValue::Double(value) => (4, write_single(builder, value)),
        };
        let mut fields = TableFields::new();
        write_union(&mut fields, 0, tag, member);
        builder.table(&fields)
    }
}

/// A tensor whose shape, order and bytes agree.
fn read_tensor(source: &Source<'_>, table: &Table<'_>) -> Result<TestTensor> {
    let tensor: TestTensor = read_table(source, table)?;
    let (rank, limits) = (tensor.sizes.len(), source.limits);
    FormatError::check_limit("rank", rank as u64, limits.rank as u64, || table.place("sizes"))?;
    let bytes = tensor.sizes.iter().try_fold(tensor.scalar_type.size() as u64, |bytes, size| {
        bytes.checked_mul(u64::try_from(*size).ok()?)
    });
    if bytes != Some(tensor.data.len() as u64) {
        let problem = format!("{} bytes of data for sizes {:?}", tensor.data.len(), &*tensor.sizes);
        return Err(table.problem("data", problem));
    }
    let mut order = tensor.dim_order.to_vec();
    order.sort_unstable();
    if order.len() != rank || order.iter().enumerate().any(|(at, dim)| at != usize::from(*dim)) {
        let problem = format!("{:?} is no permutation of {rank}", &*tensor.dim_order);
        return Err(table.problem("dim_order", problem));
    }
    Ok(tensor)
}

/// A `.bpte` file that was read and checked, with the program inside it.
#[derive(Clone)]
pub struct Bpte {
    /// Everything the tables say.
    pub tables: BundledProgram,
    /// The program inside, read and checked.
    pub pte: Pte,
}

impl Bpte {
    /// Whether a file says of itself that it is a bundled program, of any version.
    pub fn recognises(file: &[u8]) -> bool {
        file.get(4..6) == Some(b"BP")
    }

    /// Reads a bundled program from bytes. Program and test data stay where they are.
    pub fn read(bytes: Bytes, limits: &Limits) -> Result<Bpte> {
        let kind = ".bpte";
        let place = || Place::at("file");
        FormatError::check_limit("file_bytes", bytes.len() as u64, limits.file_bytes, place)?;
        let Some(found) = bytes.get(4..LEAST_FILE).and_then(|id| id.first_chunk().copied()) else {
            return Err(FormatError::TooShort { kind, found: bytes.len() as u64, needed: LEAST_FILE as u64 });
        };
        let (shown, expected) = (Identifier(found), Identifier(IDENTIFIER));
        match found {
            IDENTIFIER => {}
            [b'B', b'P', ..] => return Err(FormatError::OtherVersion { kind, found: shown, expected }),
            _ => return Err(FormatError::OtherFormat { kind, found: shown, expected }),
        }
        let bytes = shared(bytes);
        let source = Source::new(&bytes, limits);
        let tables: BundledProgram = source.root(&Buffer::new(&bytes, 0, limits))?;
        if tables.version > NEWEST {
            let (found, known) = (tables.version.into(), NEWEST.into());
            return Err(FormatError::NewerVersion {
                place: Place::at("BundledProgram.version"),
                found,
                known,
            });
        }
        let Some(program) = tables.program.get().cloned() else {
            return Err(FormatError::table("BundledProgram.program", "there is no program in the bundle"));
        };
        Ok(Bpte { pte: Pte::read(program, limits)?, tables })
    }

    /// Opens a file, mapped if it is large, and reads it.
    pub fn open(path: &Path, limits: &Limits) -> Result<Bpte> {
        Bpte::read(MappedFile::open(path, limits)?.to_bytes(), limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WriteOptions;
    use crate::pte::{ExecutionPlan, Program};
    use pteron_tensor::DType;

    fn bundle() -> BundledProgram {
        let plan = ExecutionPlan { name: "forward".into(), ..ExecutionPlan::default() };
        let mut program = Program { execution_plan: vec![plan].into(), ..Program::default() };
        program.complete();
        let mut pte = Vec::new();
        crate::pte::write(&program, &[], &WriteOptions::default(), &mut pte).unwrap();
        let tensor = TestTensor {
            scalar_type: DType::I16.into(),
            sizes: vec![2, 1].into(),
            data: Bytes::copy_of(&[1, 2, 3, 4]).into(),
            dim_order: vec![1, 0].into(),
        };
        let inputs = vec![TestValue::Tensor(tensor), TestValue::Int(-1), TestValue::Bool(true)];
        let case =
            MethodTestCase { inputs: inputs.into(), expected_outputs: vec![TestValue::Double(0.5)].into() };
        let suite = MethodTestSuite { method_name: "forward".into(), test_cases: vec![case].into() };
        BundledProgram {
            version: 2,
            method_test_suites: vec![suite].into(),
            program: Bytes::copy_of(&pte).into(),
        }
    }

    fn file(bundle: &BundledProgram) -> Vec<u8> {
        let mut builder = Builder::new();
        let root = bundle.write(&mut builder);
        builder.finish(root, Some(IDENTIFIER)).unwrap().bytes
    }

    fn read(file: &[u8]) -> Result<Bpte> {
        Bpte::read(Bytes::copy_of(file), &Limits::default())
    }

    #[test]
    fn tests_and_program_are_read() {
        let file = file(&bundle());
        assert!(Bpte::recognises(&file));
        let bpte = read(&file).unwrap();
        assert_eq!(bpte.tables, bundle());
        assert!(bpte.pte.method("forward").is_some());
    }

    #[test]
    fn contradictions_are_refused() {
        let mut newer = bundle();
        newer.version = 3;
        assert!(matches!(read(&file(&newer)), Err(FormatError::NewerVersion { found: 3, .. })));
        let mut empty = bundle();
        empty.program = Blob::default();
        assert!(read(&file(&empty)).err().unwrap().to_string().contains("no program"));
        let mut short = bundle();
        let suite = &mut short.method_test_suites.make_mut()[0];
        match &mut suite.test_cases.make_mut()[0].inputs.make_mut()[0] {
            TestValue::Tensor(tensor) => tensor.sizes = vec![3, 1].into(),
            other => panic!("{other:?}"),
        }
        let error = read(&file(&short)).err().unwrap().to_string();
        assert!(error.contains("4 bytes of data for sizes [3, 1]"), "{error}");
    }

    #[test]
    fn damage_never_panics() {
        let file = file(&bundle());
        let step = if cfg!(miri) { 97 } else { 1 };
        for at in (0..file.len()).step_by(step) {
            let _ = read(&file[..at]);
            let mut damaged = file.clone();
            for change in [0x01, 0x80, 0xff] {
                damaged[at] = file[at] ^ change;
                let _ = read(&damaged);
            }
        }
    }
}
