/**
 * Posts a file as a batch from a separate process, so that its work does not count in measurements elsewhere.
 * Arguments: port, API key, file, and `chunked` to announce no length. Prints status, body and duration as JSON.
 */
import { createReadStream, statSync } from 'node:fs'
import { request } from 'node:http'

const [port, apiKey, path = '', mode] = process.argv.slice(2)
const startMs = performance.now()
const sent = request(
  {
    port,
    host: '127.0.0.1',
    method: 'POST',
    path: '/v1/batches',
    headers: {
      authorization: `Bearer ${apiKey}`,
      'content-type': 'application/json',
      ...(mode === 'chunked' ? {} : { 'content-length': statSync(path).size }),
    },
  },
  response => {
    let text = ''
    response.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk
    })
    response.on('end', () => {
      const told = JSON.stringify({ status: response.statusCode, text, ms: performance.now() - startMs })
      process.stdout.write(told, () => process.exit(0))
    })
  },
)
// The gateway may answer and close before it has read everything.
sent.on('error', () => undefined)
createReadStream(path, { highWaterMark: 1024 * 1024 }).pipe(sent)
