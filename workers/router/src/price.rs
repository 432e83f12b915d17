//! What tokens cost, by a stamped table.
//!
//! Owns: the compiled-in table `config/prices.yaml` and the sum of a generation. What is unknown is `None`, never zero.
//!
//! Never: a guess for a model that is not listed.

use std::collections::BTreeMap;

use serde::Deserialize;
use teamster_protocol::{
    function::router::Price,
    usage::{NanoUsd, Usage},
};

use crate::{config::ModelConfig, error::Error};

const TABLE: &str = include_str!("../../../config/prices.yaml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    as_of: String,
    models: BTreeMap<String, Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    context_window: u64,
    max_output_tokens: u64,
    input: u64,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    output: u64,
}

/// The compiled-in models by `provider/model`.
pub fn table() -> Result<BTreeMap<String, ModelConfig>, Error> {
    let Table { as_of, models } = serde_yaml::from_str(TABLE).map_err(|source| Error::Yaml {
        what: "config/prices.yaml".to_owned(),
        source,
    })?;
    let model = |row: Row| ModelConfig {
        context_window: Some(row.context_window),
        max_output_tokens: Some(row.max_output_tokens),
        price: Some(Price {
            input: NanoUsd(row.input),
            // A provider that names no price for cached tokens charges them like others.
            cache_read: NanoUsd(row.cache_read.unwrap_or(row.input)),
            cache_write: NanoUsd(row.cache_write.unwrap_or(row.input)),
            output: NanoUsd(row.output),
            as_of: as_of.clone(),
        }),
    };
    Ok(models
        .into_iter()
        .map(|(id, row)| (id, model(row)))
        .collect())
}

/// What `usage` costs at `price`, saturating.
pub fn cost(price: &Price, usage: &Usage) -> NanoUsd {
    let output = usage.output.saturating_add(usage.reasoning);
    [
        (price.input, usage.input),
        (price.cache_read, usage.cache_read),
        (price.cache_write, usage.cache_write),
        (price.output, output),
    ]
    .into_iter()
    .map(|(NanoUsd(price), tokens)| NanoUsd(price.saturating_mul(tokens)))
    .fold(NanoUsd(0), NanoUsd::plus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiled_in_table_is_whole() {
        let table = table().expect("valid");
        assert!(table.len() >= 10);
        for (id, model) in table {
            assert!(
                id.split_once('/').is_some_and(|(_, name)| !name.is_empty()),
                "{id}"
            );
            let price = model.price.expect("listed");
            assert!(
                price.cache_read <= price.input && price.input <= price.output,
                "{id}"
            );
            assert!(model.max_output_tokens <= model.context_window, "{id}");
            assert_eq!(price.as_of.len(), "2025-01-01".len());
        }
    }

    /// COST-1: the exact price of two requests whose prompts were cached, read and written.
    #[test]
    fn cost_1_cached_requests_cost_exactly_what_they_cost() {
        let exact = |usage: &str, [input, cache_read, cache_write, output]: [u64; 4]| {
            let chunk = format!(r#"{{"choices":[],"usage":{usage}}}"#);
            let usage = crate::chunk::Chunk::of("", &serde_json::from_str(&chunk).expect("JSON"));
            let price = Price {
                input: NanoUsd(input),
                cache_read: NanoUsd(cache_read),
                cache_write: NanoUsd(cache_write),
                output: NanoUsd(output),
                as_of: "2025-01-01".to_owned(),
            };
            cost(&price, &usage.usage.expect("stated"))
        };
        // 86 * 2.50 + 1,920 * 1.25 + 300 * 10, in millionths of a dollar.
        let read = r#"{"prompt_tokens":2006,"completion_tokens":300,"prompt_tokens_details":{"cached_tokens":1920}}"#;
        assert_eq!(exact(read, [2500, 1250, 2500, 10_000]), NanoUsd(5_615_000));
        // 3 * 3 + 12,304 * 3.75 + 550 * 15.
        let written = r#"{"input_tokens":3,"cache_creation_input_tokens":12304,"cache_read_input_tokens":0,"output_tokens":550}"#;
        assert_eq!(
            exact(written, [3000, 300, 3750, 15_000]),
            NanoUsd(54_399_000)
        );
    }

    #[test]
    fn cost_1_each_class_of_tokens_has_its_price() {
        let price = Price {
            input: NanoUsd(1000),
            cache_read: NanoUsd(100),
            cache_write: NanoUsd(1250),
            output: NanoUsd(8000),
            as_of: "2025-01-01".to_owned(),
        };
        let usage = Usage {
            input: 1,
            cache_read: 10,
            cache_write: 2,
            output: 3,
            reasoning: 4,
            estimated: false,
        };
        assert_eq!(cost(&price, &usage), NanoUsd(1000 + 1000 + 2500 + 56_000));
        let endless = Usage {
            input: u64::MAX,
            ..usage
        };
        assert_eq!(cost(&price, &endless), NanoUsd(u64::MAX));
    }
}
