/**
 * The undici library, loaded on first use, because it takes 7 MB per thread, and most gateways call their providers
 * with their own client and fetch no pages.
 */
import { createRequire } from 'node:module'

const load = createRequire(import.meta.url)

/** Returns the library; the first call in a thread takes tens of milliseconds. */
export function undici(): typeof import('undici') {
  return load('undici') as typeof import('undici')
}
