//! A connection into a sandbox, whatever carries it.

use tokio::io::{AsyncRead, AsyncWrite};

pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> ByteStream for T {}
