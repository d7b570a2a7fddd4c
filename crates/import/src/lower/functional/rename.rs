//! Arguments with other names in them.

use crate::pt2::argument::{Argument, CustomObject, Name, OptionalTensor, OrName};

/// The same argument with every name replaced; graphs inside have names of their own and stay.
pub(super) fn argument(argument: &Argument, new: &mut dyn FnMut(&str) -> String) -> Argument {
    let mut tensor = |name: &Name| Name { name: new(&name.name) };
    match argument {
        Argument::Tensor(name) => Argument::Tensor(tensor(name)),
        Argument::OptionalTensor(OptionalTensor::Tensor(name)) => {
            Argument::OptionalTensor(OptionalTensor::Tensor(tensor(name)))
        }
        Argument::Tensors(names) => Argument::Tensors(names.iter().map(tensor).collect()),
        Argument::NestedTensors(lists) => Argument::NestedTensors(
            lists.iter().map(|names| names.iter().map(&mut tensor).collect()).collect(),
        ),
        Argument::OptionalTensors(items) => {
            let items = items.iter().map(|item| match item {
                OptionalTensor::Tensor(name) => OptionalTensor::Tensor(tensor(name)),
                OptionalTensor::None(none) => OptionalTensor::None(*none),
            });
            Argument::OptionalTensors(items.collect())
        }
        Argument::SymInt(one) => Argument::SymInt(or_name(one, new)),
        Argument::SymInts(all) => Argument::SymInts(all.iter().map(|one| or_name(one, new)).collect()),
        Argument::SymFloat(one) => Argument::SymFloat(or_name(one, new)),
        Argument::SymFloats(all) => Argument::SymFloats(all.iter().map(|one| or_name(one, new)).collect()),
        Argument::SymBool(one) => Argument::SymBool(or_name(one, new)),
        Argument::SymBools(all) => Argument::SymBools(all.iter().map(|one| or_name(one, new)).collect()),
        Argument::Object(object) => {
            Argument::Object(CustomObject { name: new(&object.name), class_fqn: object.class_fqn.clone() })
        }
        Argument::Dictionary(entries) => {
            let entries = entries.iter().map(|(key, value)| (key.clone(), self::argument(value, new)));
            Argument::Dictionary(entries.collect::<indexmap::IndexMap<_, _>>().into())
        }
        other => other.clone(),
    }
}

fn or_name<T: Clone>(one: &OrName<T>, new: &mut dyn FnMut(&str) -> String) -> OrName<T> {
    match one {
        OrName::Name(name) => OrName::Name(new(name)),
        OrName::Plain(value) => OrName::Plain(value.clone()),
    }
}
