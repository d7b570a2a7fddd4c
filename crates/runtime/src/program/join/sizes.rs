//! Sizes of a delegate's graph in terms of those of the graph that it is joined to.

use pteron_ir::{Dim, Graph, Symbol, Type};

/// What the symbols of a delegate's graph are in the joined one.
pub(super) struct Sizes<'g> {
    pub(super) to: &'g Graph,
    pub(super) from: &'g Graph,
    /// By symbol, where that is settled.
    pub(super) by: Vec<Option<Dim>>,
}

impl Sizes<'_> {
    /// Settles symbols so that a value of the joined graph is of the type that the delegate takes; `None` where it is not.
    pub(super) fn unify(&mut self, given: &Type, wanted: &Type) -> Option<()> {
        match (given, wanted) {
            (Type::Tensor(given), Type::Tensor(wanted)) => {
                (given.dtype == wanted.dtype && given.shape.len() == wanted.shape.len()).then_some(())?;
                given
                    .shape
                    .iter()
                    .zip(&wanted.shape)
                    .try_for_each(|(given, wanted)| self.unify_dim(given, wanted))
            }
            (Type::Int(given), Type::Int(wanted)) => self.unify_dim(given, wanted),
            (given, wanted) => (given == wanted).then_some(()),
        }
    }

    fn unify_dim(&mut self, given: &Dim, wanted: &Dim) -> Option<()> {
        if let Some(symbol) = wanted.as_symbol()
            && let Some(slot @ None) = self.by.get_mut(symbol.0 as usize)
        {
            // The delegate would refuse what is larger than it declares.
            let fits = match self.from.symbols.get(symbol)?.max {
                Some(max) => self.to.symbols.upper(given).is_some_and(|most| most <= max),
                None => true,
            };
            *slot = fits.then(|| given.clone());
            return fits.then_some(());
        }
        let by: Option<Vec<Dim>> =
            wanted.parts().1.iter().map(|(symbol, _)| self.by.get(symbol.0 as usize)?.clone()).collect();
        let mut terms = by?.into_iter();
        (replaced(wanted, |_| terms.next())? == *given).then_some(())
    }
}

/// An expression with its symbols replaced.
fn replaced(dim: &Dim, mut by: impl FnMut(Symbol) -> Option<Dim>) -> Option<Dim> {
    let (constant, terms) = dim.parts();
    terms.iter().try_fold(Dim::known(constant), |sum, &(symbol, factor)| sum.add(&by(symbol)?.scale(factor)?))
}

/// A type with its symbols replaced; `None` on overflow.
pub(super) fn substituted(ty: &Type, by: &[Dim]) -> Option<Type> {
    let dim = |dim: &Dim| replaced(dim, |symbol| by.get(symbol.0 as usize).cloned());
    Some(match ty {
        Type::Tensor(tensor) => {
            let mut tensor = tensor.clone();
            tensor.shape = tensor.shape.iter().map(dim).collect::<Option<_>>()?;
            Type::Tensor(tensor)
        }
        Type::Int(int) => Type::Int(dim(int)?),
        other => other.clone(),
    })
}
