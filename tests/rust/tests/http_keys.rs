//! Keys of different places, methods and callers are different, whatever their parts contain.

use std::collections::{BTreeSet, HashSet};

use tidegate::http::placed_key;

/// All texts of at most `length` of the characters that could be confused in a key.
fn confusable(length: usize) -> Vec<String> {
    let shorter = if length == 0 { return vec![String::new()] } else { confusable(length - 1) };
    let longer = shorter.iter().flat_map(|text| ["\"", "\\", " ", "A"].map(|end| format!("{text}{end}")));
    shorter.iter().cloned().chain(longer).collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn no_two_places_methods_and_keys_are_one_key() {
    let texts = confusable(4);
    let places: Vec<Option<&str>> = texts.iter().map(|place| Some(place.as_str())).collect();
    for places in [&[None], &places[..]] {
        let mut all = HashSet::new();
        for place in places {
            for (method, key) in
                [None, Some("A")].into_iter().flat_map(|method| texts.iter().map(move |key| (method, key)))
            {
                let placed = placed_key(*place, method, key);
                assert!(all.insert(placed.clone()), "{placed} is also that of {place:?}, {method:?}, {key:?}");
            }
        }
    }
}
