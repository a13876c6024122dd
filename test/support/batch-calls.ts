/** Batches over real HTTP, with the test itself acting as the runner, so that it knows every result. */
import { type BatchStatus, type BatchUsage, NO_USAGE } from '../../src/protocol/management/batches.ts'
import { openStore } from '../../src/storage/open.ts'

interface BatchReply {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  readonly document: Record<string, unknown>
  /** `error.message` of an envelope; empty otherwise. */
  readonly message: string
}

type BatchCaller = (
  method: string,
  path: string,
  body?: string | Uint8Array | ReadableStream,
  headers?: Readonly<Record<string, string>>,
) => Promise<BatchReply>

export function batchCaller(url: string, apiKey: string): BatchCaller {
  return async (method, path, body, headers = {}) => {
    const reply = await fetch(url + path, {
      method,
      headers: {
        authorization: `Bearer ${apiKey}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body, duplex: 'half' as const }),
    })
    const text = await reply.text()
    const document = (text === '' ? {} : JSON.parse(text)) as Record<string, unknown>
    const error = document['error'] as { message?: string } | null | undefined
    return { status: reply.status, headers: reply.headers, text, document, message: error?.message ?? '' }
  }
}

/** A body of POST /batches. */
export function batchBody(
  requests: readonly object[] = [{ custom_id: 'a', body: { input: 'Hello' } }],
  fields: object = {},
): string {
  return JSON.stringify({ endpoint: '/v1/responses', model: 'sim/echo', ...fields, requests })
}

export const requestsOf = (count: number): readonly { custom_id: string; body: object }[] =>
  Array.from({ length: count }, (_, number) => ({
    custom_id: `request-${number}`,
    body: { input: `Hello ${number}` },
  }))

interface EndOptions {
  readonly status?: Extract<BatchStatus, 'completed' | 'cancelled' | 'expired'>
  /** The results of the first lines; others get none. Default: all have one. */
  readonly finished?: number
  /** The result of a line without `custom_id`. */
  readonly resultOf?: (number: number) => object
  readonly usage?: BatchUsage
  /** Every so many lines one has failed; 0: none. */
  readonly failEvery?: number
  readonly at?: string
}

/** Brings a batch to an end in the Store. */
export async function endBatch(storageUrl: string, id: string, options: EndOptions = {}): Promise<void> {
  const { status = 'completed', usage = NO_USAGE, failEvery = 0, at = new Date().toISOString() } = options
  const resultOf =
    options.resultOf ?? (number => ({ id: `batch_req_${number}`, response: { number }, error: null }))
  const store = await openStore(storageUrl)
  try {
    const { work } = store.batches
    const moved = async (from: BatchStatus, to: BatchStatus) => {
      if ((await work.move(id, [from], to, at)) === null) throw new Error(`the batch is not ${from}`)
    }
    const nowMs = Date.parse(at)
    const leaseUntilMs = nowMs + 60_000
    const claim = await work.claimBatch(id, 'test', nowMs, leaseUntilMs)
    if (claim === null) throw new Error('the batch is claimed')
    await work.markChecked(id, claim, Number.MAX_SAFE_INTEGER, [])
    await moved('validating', 'in_progress')
    let left = options.finished ?? Number.POSITIVE_INFINITY
    while (left > 0) {
      const terms = { limit: Math.min(left, 1_000), nowMs, leaseUntilMs }
      const lines = await work.claimLines(id, 'test', terms)
      if (lines.length === 0) break
      left -= lines.length
      await work.finish(
        'test',
        lines.map(({ batchId, number, fence }) => ({
          batchId,
          number,
          fence,
          outcome: failEvery > 0 && number % failEvery === 0 ? 'failed' : 'completed',
          result: JSON.stringify(resultOf(number)),
          usage,
        })),
      )
    }
    await work.releaseBatch(id, claim)
    if (status === 'completed') await moved('in_progress', 'finalizing')
    else if (status === 'cancelled') await moved('in_progress', 'cancelling')
    const last = ({ completed: 'finalizing', cancelled: 'cancelling', expired: 'in_progress' } as const)[
      status
    ]
    await moved(last, status)
  } finally {
    await store.close()
  }
}
