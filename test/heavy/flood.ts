/**
 * Sends one request over and over from its own thread, so that its work does not delay the measuring code. Stops on a
 * message, and reports how often it got each status.
 */
import { Agent, request } from 'node:http'
import { parentPort, workerData } from 'node:worker_threads'
import { responsesPost } from '../support/responses-post.ts'

export interface FloodOrder {
  readonly port: number
  readonly apiKey: string
  /** The body. */
  readonly text: string
  /** Requests under way at once. */
  readonly atOnce: number
}

/** A refused client comes again after this. */
const AGAIN_MS = 50

const { port, apiKey, text, atOnce } = workerData as FloodOrder
const body = Buffer.from(text)
const statuses: Record<number, number> = {}
const agent = new Agent({ keepAlive: false })
let on = true

function send(): Promise<number> {
  return new Promise(resolve => {
    const sent = request(responsesPost({ port, apiKey }, agent, text), response => {
      response.resume()
      response.once('close', () => resolve(response.statusCode ?? 0))
    })
    sent.once('error', () => resolve(0))
    sent.end(body)
  })
}

async function client(): Promise<void> {
  while (on) {
    const status = await send()
    statuses[status] = (statuses[status] ?? 0) + 1
    if (status !== 200) await new Promise(resolve => setTimeout(resolve, AGAIN_MS))
  }
}

parentPort?.once('message', () => {
  on = false
})
await Promise.all(Array.from({ length: atOnce }, client))
parentPort?.postMessage(statuses)
