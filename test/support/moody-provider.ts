/** A provider in the openai-chat format that always streams the same reply, and fails or is slow when told to. */
import { createServer } from 'node:http'
import type { Test } from 'tap'
import { listening } from './listening.ts'

/** How a provider answers: with this status, or with a stream whose first words come late. */
interface Mood {
  status: number
  /** Only each second request gets the status. */
  half: boolean
  lateMs: number
}

const chunk = (delta: object, finish: string | null) =>
  `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: 'm', choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`
const FIRST = chunk({ role: 'assistant', content: 'Hello' }, null)
const USAGE = {
  id: 'c',
  object: 'chat.completion.chunk',
  model: 'm',
  choices: [],
  usage: { prompt_tokens: 1, completion_tokens: 12 },
}
const REST = `${chunk({ content: ' and all the rest' }, null)}${chunk({}, 'stop')}data: ${JSON.stringify(USAGE)}\n\ndata: [DONE]\n\n`
/** Long enough for its speed to be measured. */
const REST_MS = 50

export async function moodyProvider(
  t: Pick<Test, 'teardown'>,
): Promise<{ readonly url: string; readonly mood: Mood }> {
  const mood: Mood = { status: 200, half: false, lateMs: 0 }
  let requests = 0
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      const status = mood.half && requests++ % 2 === 0 ? 200 : mood.status
      if (status !== 200) {
        response.writeHead(status, { 'content-type': 'application/json' })
        response.end(JSON.stringify({ error: { message: 'not now', type: 'x', code: 'x' } }))
        return
      }
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.flushHeaders()
      setTimeout(() => {
        response.write(FIRST)
        setTimeout(() => response.end(REST), REST_MS)
      }, mood.lateMs)
    })
  })
  const { url } = await listening(server, t)
  return { url, mood }
}
