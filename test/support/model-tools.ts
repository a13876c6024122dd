/**
 * A gateway whose tools call scripted models: an outer model, a panel, an analyst. HTTP, limits and ledger are real.
 */
import type { Test } from 'tap'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { openStore } from '../../src/storage/open.ts'
import { DEFAULT_ORGANIZATION_ID } from '../../src/storage/store.ts'
import type { UsageRecord } from '../../src/storage/usage.ts'
import { parseEventStream, startGateway, type TestGateway, type TestGatewayOptions } from './gateway.ts'
import { caller } from './management.ts'
import { ScriptedProvider, type ScriptedReply } from './provider.ts'

export const OUTER = 'acme/outer'
const NAMES = ['outer', 'a', 'b', 'c', 'analyst', 'judge'] as const
const PRICING = { prompt: '0.000001', completion: '0.00001' }

export interface ModelTools {
  readonly gateway: TestGateway
  readonly provider: ScriptedProvider
  /** A key with a limit in USD. */
  newKey(limit: number | null): Promise<string>
  /** POST of a request whose models say these things. */
  ask(
    replies: Readonly<Record<string, readonly ScriptedReply[]>>,
    fields: Readonly<Record<string, unknown>>,
    more?: { readonly key?: string; readonly signal?: AbortSignal; readonly path?: string },
  ): Promise<Response>
  /** The same, as a whole response. */
  whole(
    replies: Readonly<Record<string, readonly ScriptedReply[]>>,
    fields: Readonly<Record<string, unknown>>,
  ): Promise<ResponseResource>
  /** The same, as events. */
  events(
    replies: Readonly<Record<string, readonly ScriptedReply[]>>,
    fields: Readonly<Record<string, unknown>>,
  ): Promise<readonly StreamEvent[]>
  /** Usage records so far. */
  records(): Promise<readonly UsageRecord[]>
  /** USD that GET /key tells. */
  spent(key?: string): Promise<number>
}

export async function startModelTools(
  t: Pick<Test, 'teardown'>,
  options: TestGatewayOptions = {},
): Promise<ModelTools> {
  const provider = new ScriptedProvider()
  const baseUrl = await provider.listen()
  const gateway = await startGateway({
    ...options,
    fusion: { panel: ['acme/a', 'acme/b'], ...options.fusion },
    providers: [{ slug: 'acme', name: 'Acme', format: 'openai-chat', baseUrl, apiKey: 'x' }],
    models: NAMES.map(name => ({
      id: `acme/${name}`,
      name,
      endpoints: [{ provider: 'acme', upstreamModel: name, pricing: PRICING, zdr: true }],
    })),
  })
  const store = await openStore(gateway.storageUrl)
  t.teardown(async () => {
    await store.close()
    await gateway.close()
    await provider.close()
  })
  const ask: ModelTools['ask'] = async (replies, fields, { key, signal, path = '/responses' } = {}) => {
    for (const name of NAMES) provider.script(name, replies[name] ?? [])
    return await fetch(`${gateway.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key ?? gateway.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: OUTER, ...(path === '/responses' ? { input: 'Why?' } : {}), ...fields }),
      ...(signal === undefined ? {} : { signal }),
    })
  }
  return {
    gateway,
    provider,
    ask,
    async newKey(limit) {
      const made = await caller(gateway.url, gateway.managementKey)('POST', '/keys', {
        name: 'limited',
        limit,
      })
      return String(made.document['key'])
    },
    async whole(replies, fields) {
      const reply = await ask(replies, fields)
      const document = (await reply.json()) as ResponseResource
      if (reply.status !== 200) throw new Error(`${reply.status} ${JSON.stringify(document)}`)
      return document
    },
    async events(replies, fields) {
      const reply = await ask(replies, { ...fields, stream: true })
      const text = await reply.text()
      if (reply.status !== 200) throw new Error(`${reply.status} ${text}`)
      return parseEventStream(text)
    },
    async records() {
      await gateway.shipper.ship()
      return await store.ledger.latest({ organizationId: DEFAULT_ORGANIZATION_ID }, 100)
    },
    async spent(key = gateway.apiKey) {
      await gateway.shipper.ship()
      const told = await caller(gateway.url, key)('GET', '/key')
      return (told.document['data'] as { usage: number }).usage
    },
  }
}

/** A call of a tool, as the outer model makes it. */
export const calling = (name: string, args: object = {}): ScriptedReply => ({
  calls: [{ name, arguments: JSON.stringify(args) }],
})
export const saying = (text: string): ScriptedReply => ({ text })

/** The first item of a tool. */
export function itemOf(response: ResponseResource, name: string): Readonly<Record<string, unknown>> {
  const found = response.output.find(({ type }) => type.endsWith(`:${name}`))
  if (found === undefined) throw new Error(`no item of ${name}`)
  return found as unknown as Readonly<Record<string, unknown>>
}

/** The result of the last tool call that a model was told. */
export function toldTo(provider: ScriptedProvider, model: string): Readonly<Record<string, unknown>> {
  const messages = provider.asked.findLast(asked => asked.model === model)?.body['messages']
  const last = (messages as { role: string; content: string }[]).findLast(({ role }) => role === 'tool')
  return JSON.parse(last?.content ?? 'null') as Readonly<Record<string, unknown>>
}

/** Messages of the last request to a model. */
export function messagesTo(
  provider: ScriptedProvider,
  model: string,
): readonly { readonly role: string; readonly content: unknown }[] {
  const asked = provider.asked.findLast(each => each.model === model)
  return (asked?.body['messages'] ?? []) as { role: string; content: unknown }[]
}
