/** A gateway with a scripted model for tools that work on files, and the calls that their tests share. */
import { randomBytes } from 'node:crypto'
import type { Test } from 'tap'
import { systemClock } from '../../src/base/clock.ts'
import { keyRecord } from '../../src/callers/api-key.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { openStore } from '../../src/storage/open.ts'
import { MODEL, startAligned } from './aligned-gateway.ts'
import { grammarViolations } from './event-grammar.ts'
import { finalOf, parseEventStream, type TestGateway, type TestGatewayOptions } from './gateway.ts'
import type { ScriptedReply } from './provider.ts'

interface ToolAnswer {
  readonly response: ResponseResource
  /** What the model got for each call, in order. */
  readonly results: readonly string[]
  readonly events: readonly StreamEvent[]
}

export type Fields = Readonly<Record<string, unknown>>

/** POST /files. */
export async function uploadTo(
  { url, apiKey: ownKey }: TestGateway,
  name: string,
  bytes: string | Uint8Array,
  purpose = 'user_data',
  apiKey = ownKey,
) {
  const form = new FormData()
  form.append('purpose', purpose)
  form.append('file', new Blob([typeof bytes === 'string' ? bytes : Buffer.from(bytes)]), name)
  const reply = await fetch(`${url}/files`, {
    method: 'POST',
    headers: { authorization: `Bearer ${apiKey}` },
    body: form,
  })
  return { status: reply.status, document: (await reply.json()) as Record<string, unknown> }
}

export async function startFileTools(t: Test, options: TestGatewayOptions = {}) {
  const { gateway, provider, close } = await startAligned(options)
  t.teardown(close)
  const calls = (name: string, ...given: readonly Fields[]): ScriptedReply[] =>
    given.map(args => ({ calls: [{ name, arguments: JSON.stringify(args) }] }))

  /** Has the model call the function once with each of the arguments, one turn after the other. */
  async function play(
    tool: Fields,
    name: string,
    given: readonly Fields[],
    { apiKey = gateway.apiKey, ...fields }: Fields & { readonly apiKey?: string } = {},
  ): Promise<ToolAnswer> {
    provider.asked.length = 0
    provider.script('model', [...calls(name, ...given), { text: 'Done.' }])
    const reply = await gateway.respond(
      { model: MODEL, input: 'Work.', tools: [tool], ...fields },
      { headers: { authorization: `Bearer ${apiKey}` } },
    )
    if (reply.status !== 200) throw new Error(await reply.text())
    const events = fields['stream'] === true ? parseEventStream(await reply.text()) : []
    const faults = events.length === 0 ? [] : grammarViolations(events)
    if (faults.length > 0) throw new Error(faults.join('\n'))
    const response = events.length > 0 ? finalOf(events) : ((await reply.json()) as ResponseResource)
    const messages = (provider.asked.at(-1)?.body['messages'] ?? []) as readonly Fields[]
    const results = messages.filter(({ role }) => role === 'tool').map(({ content }) => String(content))
    return { response, results, events }
  }

  async function keyIn(workspaceId: string): Promise<string> {
    const store = await openStore(gateway.storageUrl)
    const apiKey = `sk-gw-v1-${randomBytes(32).toString('hex')}`
    await store.keys.add(keyRecord(apiKey, 'inference', { name: 'k', clock: systemClock, workspaceId }))
    await store.close()
    return apiKey
  }

  async function upload(name: string, bytes: string | Uint8Array, apiKey?: string, purpose?: string) {
    const { document } = await uploadTo(gateway, name, bytes, purpose, apiKey)
    return String(document['id'])
  }

  async function content(id: string): Promise<string> {
    const headers = { authorization: `Bearer ${gateway.apiKey}` }
    return await (await fetch(`${gateway.url}/files/${id}/content`, { headers })).text()
  }

  return { gateway, provider, play, keyIn, upload, content }
}

export function resultsOf(results: readonly string[]): readonly Record<string, never>[] {
  return results.map(text => JSON.parse(text) as Record<string, never>)
}
