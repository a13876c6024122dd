/** How long the head of a request may be. Leaf, so that the thread that starts workers can reach it. */

/**
 * The HTTP library reads its limit from the real environment of the process, once, when it is first loaded. A
 * worker's `process.env` is a copy unless it was started with SHARE_ENV: set this in the main thread then.
 */
export const HEADER_LIMIT_VARIABLE = 'UWS_HTTP_MAX_HEADERS_SIZE'

/** Bytes of request line and headers; more is 431. The library's own 4 KiB is too little for proxies' headers. */
export const REQUEST_HEAD_MAX_BYTES = 16_384
