/** Sends many requests at once, and counts the answers by status, with the first body of each. */
import { Agent, request } from 'node:http'
import { responsesPost, type Target } from './responses-post.ts'

interface Answers {
  readonly byStatus: ReadonlyMap<number, number>
  readonly bodies: ReadonlyMap<
    number,
    { readonly headers: Readonly<Record<string, unknown>>; readonly body: string }
  >
}

/** POST /v1/responses `count` times, in turn to each target, `parallel` at a time for each. */
export async function askMany(
  targets: readonly Target[],
  body: unknown,
  count: number,
  parallel = 100,
): Promise<Answers> {
  const byStatus = new Map<number, number>()
  const bodies = new Map<number, { headers: Readonly<Record<string, unknown>>; body: string }>()
  const agents = targets.map(() => new Agent({ keepAlive: true, maxSockets: parallel }))
  const text = JSON.stringify(body)
  await Promise.all(
    Array.from({ length: count }, async (_, at) => {
      const target = targets[at % targets.length]
      const agent = agents[at % targets.length]
      if (target === undefined || agent === undefined) return
      const { status, headers, reply } = await postOnce(target, agent, text)
      byStatus.set(status, (byStatus.get(status) ?? 0) + 1)
      if (!bodies.has(status)) bodies.set(status, { headers, body: reply })
    }),
  )
  for (const agent of agents) agent.destroy()
  return { byStatus, bodies }
}

/** POST /v1/responses. @param agent false: a connection of its own, so that any thread may get it */
export function postOnce(target: Target, agent: Agent | false, text: string) {
  return new Promise<{ status: number; headers: Readonly<Record<string, unknown>>; reply: string }>(
    (resolve, reject) => {
      const sent = request(responsesPost(target, agent, text), response => {
        let reply = ''
        response.setEncoding('utf8').on('data', (more: string) => {
          reply += more
        })
        response.on('end', () =>
          resolve({ status: response.statusCode ?? 0, headers: response.headers, reply }),
        )
        response.on('error', reject)
      })
      sent.on('error', reject)
      sent.end(text)
    },
  )
}
