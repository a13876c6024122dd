/**
 * Load that keeps task workers busy while another load is measured: a fixed number of connections, each of which sends
 * its next request as soon as it has a reply. Prints a line once every connection has had a reply, then answers each
 * line on standard input with one line of counts.
 * `node bench/busy-load.ts PORT PATH CONNECTIONS HEADERS_JSON BODY_FILE EXPECTED`
 */
import { readFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { createInterface } from 'node:readline'

const [port = '', path = '', connections = '', headers = '', bodyFile = '', expected = ''] =
  process.argv.slice(2)
const body = readFileSync(bodyFile)
const agent = new Agent({ keepAlive: true, maxSockets: Number(connections) })
/** After a failure; asking again at once would only fail again. */
const PAUSE_MS = 250

let counts = { requests: 0, errors: 0, wrong: 0 }
let answered = 0

function say(value: object): void {
  process.stdout.write(`${JSON.stringify(value)}\n`)
}

function ask(): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve, reject) => {
    const options = {
      host: '127.0.0.1',
      port: Number(port),
      path,
      method: 'POST',
      agent,
      headers: { ...(JSON.parse(headers) as Record<string, string>), 'content-length': body.length },
    }
    const one = request(options, reply => {
      let text = ''
      reply.setEncoding('utf8')
      reply.on('data', (piece: string) => {
        text += piece
      })
      reply.on('end', () => resolve({ status: reply.statusCode ?? 0, text }))
      reply.on('error', reject)
    })
    one.on('error', reject)
    one.end(body)
  })
}

async function fail(reason: string): Promise<void> {
  if (counts.errors++ === 0) process.stderr.write(`refused: ${reason.slice(0, 300)}\n`)
  await new Promise(resolve => setTimeout(resolve, PAUSE_MS))
}

async function connection(): Promise<never> {
  for (let first = true; ; ) {
    try {
      const { status, text } = await ask()
      if (status !== 200) await fail(`${status} ${text}`)
      else {
        counts.requests++
        if (!text.includes(expected)) counts.wrong++
        if (first && ++answered === Number(connections)) say({ phase: 'busy' })
        first = false
      }
    } catch (error) {
      await fail(String(error))
    }
  }
}

createInterface({ input: process.stdin })
  .on('line', () => {
    say(counts)
    counts = { requests: 0, errors: 0, wrong: 0 }
  })
  .on('close', () => process.exit(0))

await Promise.all(Array.from({ length: Number(connections) }, connection))
