//! What the verifier says of graphs that the text form cannot hold: values and symbols outside their tables, and
//! nodes with a place.

use pteron_ir::{Dim, Graph, Node, Op, Output, Place, Symbol, TensorType, Type, ValueId, verify};
use pteron_tensor::DType;

fn messages(graph: &Graph) -> Vec<String> {
    verify(graph).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn values_outside_the_table_are_reported_once_each_use() {
    let mut graph = Graph::default();
    let x = graph.add_input("x", Type::Tensor(TensorType::known(DType::F32, &[2])));
    let op = Op::Add { a: x, b: ValueId(98) };
    graph.body.nodes.push(Node { op, results: vec![ValueId(99)], place: Some(Place { chain: 1, index: 7 }) });
    graph.outputs.push(Output { name: "y".into(), value: ValueId(u32::MAX), ty: Type::Float });
    let node = "%99: ? = add(a=%0, b=%98)";
    assert_eq!(
        messages(&graph),
        [
            format!("%98 is not in the table of values, in `{node}` (chain 1 #7)"),
            format!("%99 is not in the table of values, in `{node}` (chain 1 #7)"),
            "%4294967295 is not in the table of values, in `output %4294967295 \"y\": float`".to_owned(),
        ]
    );
}

#[test]
fn symbols_outside_the_table_are_reported() {
    let mut graph = Graph::default();
    let missing = Dim::symbol(Symbol(3)).add(&Dim::known(1)).unwrap();
    let x = graph.add_input("x", Type::Tensor(TensorType { dtype: DType::F32, shape: vec![missing] }));
    // With such a type no rule is tried: this node would be refused.
    graph.body.nodes.push(Node { op: Op::Sort { x, axis: 9 }, results: vec![], place: None });
    assert_eq!(messages(&graph), ["symbol #3 is not in the table of symbols, in `%0: f32[#3+1]`"]);
}
