//! Model providers: catalogue, streaming, retries, cost. The only worker that talks to a model.
