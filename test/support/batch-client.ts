/** Batches over real HTTP: a provider of the test, the product started as usual, and a client that polls. */
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { Test } from 'tap'
import type { ResultDocument } from './batch-world.ts'
import { NO_SHEDDING } from './gateway-process.ts'
import { caller } from './management.ts'
import { type LineAnswer, LineProvider } from './provider.ts'
import { tempFolder } from './temp-folder.ts'

export const BATCH_MODEL = 'acme/model'

export interface BatchDocument {
  readonly id: string
  readonly status: string
  readonly request_counts: { readonly total: number; readonly completed: number; readonly failed: number }
  readonly usage: { readonly cost: number } | null
  readonly results: readonly (ResultDocument & { readonly custom_id: string })[] | null
  readonly error: { readonly message: string } | null
  readonly waiting: { readonly reason: string; readonly since: number } | null
}

/** A configuration whose one model is served by the provider. */
export async function startLineProvider(t: Pick<Test, 'teardown'>, answer?: LineAnswer) {
  const provider = new LineProvider(answer)
  const baseUrl = await provider.listen()
  t.teardown(() => provider.close())
  return {
    provider,
    settings: {
      providers: [{ slug: 'acme', format: 'openai-chat', baseUrl, apiKey: 'shared' }],
      models: [
        {
          id: BATCH_MODEL,
          endpoints: [{ provider: 'acme', pricing: { prompt: '0.000001', completion: '0.000002' } }],
        },
      ],
      limits: NO_SHEDDING,
    },
  }
}

export const newDatabaseUrl = (): string => `sqlite:${join(tempFolder('sluice-batches'), 'gateway.db')}`

export class BatchClient {
  readonly #call: ReturnType<typeof caller>

  /** @param url without `/v1` */
  constructor(url: string, apiKey: string) {
    this.#call = caller(`${url}/v1`, apiKey)
  }

  /** One request for each text. @throws Error when it is refused */
  async create(texts: readonly string[], fields: object = {}): Promise<BatchDocument> {
    const { status, text, document } = await this.#call('POST', '/batches', {
      endpoint: '/v1/chat/completions',
      model: BATCH_MODEL,
      requests: texts.map((content, at) => ({
        custom_id: `line-${at}`,
        body: { messages: [{ role: 'user', content }] },
      })),
      ...fields,
    })
    if (status !== 202) throw new Error(`POST /batches: ${status} ${text}`)
    return document as unknown as BatchDocument
  }

  async find(id: string): Promise<BatchDocument> {
    const { status, text, document } = await this.#call('GET', `/batches/${id}`)
    if (status !== 200) throw new Error(`GET /batches/${id}: ${status} ${text}`)
    return document as unknown as BatchDocument
  }

  async cancel(id: string): Promise<BatchDocument> {
    return (await this.#call('POST', `/batches/${id}/cancel`)).document as unknown as BatchDocument
  }

  /** Polls until the batch is as described. */
  async until(id: string, described: (batch: BatchDocument) => boolean): Promise<BatchDocument> {
    for (;;) {
      const batch = await this.find(id)
      if (described(batch)) return batch
      await delay(20)
    }
  }

  /** The batch in its last state, with its results. */
  ended(id: string): Promise<BatchDocument> {
    return this.until(id, ({ results }) => results !== null)
  }
}
