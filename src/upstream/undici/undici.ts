/**
 * The undici library, loaded on first use, because it takes 7 MB per thread, and most gateways call their providers
 * with their own client and fetch no pages.
 */
import { createRequire } from 'node:module'
import type { Dispatcher } from 'undici'

const load = createRequire(import.meta.url)

/** Returns the library; the first call in a thread takes tens of milliseconds. */
export function undici(): typeof import('undici') {
  return load('undici') as typeof import('undici')
}

/**
 * Sends a request that ends immediately when its signal fires. The library itself listens to the signal only once it
 * has a connection, and connecting may take as long as the server likes. Rejects with the reason of the signal.
 */
export async function requestWithin(
  dispatcher: Dispatcher,
  options: Omit<Dispatcher.RequestOptions, 'signal'>,
  signal: AbortSignal | null,
): Promise<Dispatcher.ResponseData> {
  if (signal === null) return await dispatcher.request(options)
  signal.throwIfAborted()
  const { promise, reject } = Promise.withResolvers<never>()
  const leave = (): void => reject(signal.reason as Error)
  signal.addEventListener('abort', leave, { once: true })
  try {
    const asked = dispatcher.request({ ...options, signal })
    // It may still fail after its caller has left.
    asked.catch(() => undefined)
    return await Promise.race([asked, promise])
  } finally {
    signal.removeEventListener('abort', leave)
  }
}
