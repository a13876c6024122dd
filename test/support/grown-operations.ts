/** The operations that take a body, with every place where the body can grow, and the rest of the body. */
import type { Test } from 'tap'
import { DESCRIPTIONS } from '../../src/api/openapi/document.ts'
import { type GrowingWorld, LARGEST, UPSTREAMS } from './growing-work.ts'
import { allOperations } from './operations.ts'
import { type Growth, growthsOf } from './schema-growth.ts'

interface GrownOperation {
  readonly id: string
  /** Models that are asked, one after the other; for an operation that asks none, null. */
  readonly models: readonly (string | null)[]
  readonly growths: readonly Growth[]
  send(world: GrowingWorld, model: string | null, grown: unknown): Promise<number>
}

const MODELS = UPSTREAMS.map(format => `acme/${format}`)
const USER = { role: 'user', content: 'hi' }
/** What a body has beside what grows; of others it is their first example. */
const BASES: Readonly<Record<string, { readonly models: readonly string[]; readonly body: object }>> = {
  createResponse: { models: MODELS, body: { input: 'hi' } },
  compactConversation: { models: MODELS, body: { input: 'hi' } },
  countInputTokens: { models: MODELS, body: { input: 'hi' } },
  createChatCompletion: { models: MODELS, body: { messages: [USER] } },
  createMessage: { models: MODELS, body: { max_tokens: 100, messages: [USER] } },
  countMessageTokens: { models: MODELS, body: { messages: [USER] } },
  createEmbeddings: { models: ['acme/embed'], body: { input: 'hi' } },
}
/** Their tools are those of `tools`. */
const REPEATED = /additional_tools\)\.tools\[\]/

export async function grownOperations(t: Test): Promise<readonly GrownOperation[]> {
  const rows = await allOperations(t)
  return rows.flatMap(({ id, method, path, key }) => {
    const { schema, examples = {}, media } = DESCRIPTIONS[id]?.body ?? {}
    if (schema === undefined || media !== undefined) return []
    const base = BASES[id]?.body ?? (Object.values(examples)[0] as object | undefined) ?? {}
    const growths = growthsOf(schema).filter(growth => growth.max >= LARGEST && !REPEATED.test(growth.path))
    return [
      {
        id,
        models: BASES[id]?.models ?? [null],
        growths,
        async send({ gateway }: GrowingWorld, model: string | null, grown: unknown) {
          const answer = await fetch(`${gateway.url}${path.replace(/\{\w+\}/g, 'x')}`, {
            method,
            headers: {
              authorization: `Bearer ${key === 'management' ? gateway.managementKey : gateway.apiKey}`,
              'content-type': 'application/json',
            },
            body: JSON.stringify({ ...base, ...(grown as object), ...(model === null ? {} : { model }) }),
          })
          await answer.arrayBuffer()
          return answer.status
        },
      },
    ]
  })
}
