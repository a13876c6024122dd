/** A gateway with a parrot behind it, whose key has the guardrail that the test defines. */
import type { Test } from 'tap'
import { hashKey } from '../../src/callers/api-key.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'
import type { GuardrailRecord } from '../../src/protocol/management/guardrails.ts'
import { openStore } from '../../src/storage/open.ts'
import { parseEventStream, startGateway, type TestGateway, type TestGatewayOptions } from './gateway.ts'
import { giveGuardrail } from './guardrail.ts'
import { type Parrot, parrotRows, startParrot } from './provider.ts'

export interface Reply {
  readonly status: number
  readonly retryAfter: string | null
  /** Empty for whole answers. */
  readonly events: readonly StreamEvent[]
  /** The answer, or the response of the terminal event, or the envelope. */
  readonly document: Record<string, unknown>
  readonly text: string
}

interface GuardedGateway {
  readonly gateway: TestGateway
  readonly parrot: Parrot
  /** The key has this guardrail alone from here on. */
  guard(rules: Partial<GuardrailRecord>): Promise<GuardrailRecord>
  ask(body: Record<string, unknown>): Promise<Reply>
}

export async function startGuarded(
  t: Pick<Test, 'teardown'>,
  options: TestGatewayOptions = {},
): Promise<GuardedGateway> {
  const parrot = await startParrot()
  const rows = parrotRows(parrot.url)
  const gateway = await startGateway({
    ...options,
    providers: [...rows.providers, ...(options.providers ?? [])],
    models: [...rows.models, ...(options.models ?? [])],
  })
  const store = await openStore(gateway.storageUrl)
  t.teardown(async () => {
    await store.close()
    await gateway.close()
    parrot.close()
  })
  const assignee = hashKey(gateway.apiKey)
  return {
    gateway,
    parrot,
    async guard(rules) {
      const record = await giveGuardrail(store, assignee, rules)
      gateway.serving.changed({ kind: 'guardrails', organizationId: record.organizationId })
      return record
    },
    async ask(body) {
      const answer = await gateway.respond(body, { headers: { 'x-gateway-metadata': 'enabled' } })
      const text = await answer.text()
      const retryAfter = answer.headers.get('retry-after')
      const { status } = answer
      if (!(answer.headers.get('content-type') ?? '').startsWith('text/event-stream')) {
        return { status, retryAfter, events: [], document: JSON.parse(text) as Record<string, unknown>, text }
      }
      const events = parseEventStream(text)
      const last = events.at(-1) as unknown as { response?: Record<string, unknown> }
      return { status, retryAfter, events, document: last.response ?? {}, text }
    },
  }
}

/** Everything the reply says, by kind: of a whole answer, or of the terminal event. */
export function saidIn(document: Record<string, unknown>): string {
  const output = (document['output'] ?? []) as readonly {
    content?: readonly { text?: string; refusal?: string }[]
    arguments?: string
    summary?: readonly { text?: string }[]
  }[]
  return output
    .map(item =>
      [
        ...(item.summary ?? []).map(part => part.text ?? ''),
        ...(item.content ?? []).map(part => part.text ?? part.refusal ?? ''),
        item.arguments ?? '',
      ].join(''),
    )
    .join('\n')
}

/** The text of all text deltas, as a client that reads along sees it. */
export function deltasIn(events: readonly StreamEvent[]): string {
  return events
    .map(event => (event.type === 'response.output_text.delta' ? (event as { delta: string }).delta : ''))
    .join('')
}

/** The stages of the pipeline, wherever the reply has them. */
export function stagesIn(document: Record<string, unknown>): readonly Record<string, unknown>[] {
  const metadata = document['gateway_metadata'] as
    | { pipeline?: readonly Record<string, unknown>[] }
    | undefined
  return metadata?.pipeline ?? []
}
