/** The largest batch, while streams run: memory, the pace of the streams, and the limit. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, mkdtempSync, openSync, rmSync, statSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type GatewayProcess, NO_SHEDDING, startGatewayProcess } from '../support/gateway-process.ts'
import { mib, newAgent, openProbe, pause, percentile } from '../support/stream-probe.ts'
import { startProviders } from './provider-process.ts'

// Large bodies of POST /batches on disk.

interface BatchFileOptions {
  readonly requests: number
  /** Of the text of each request. */
  readonly textBytes: number
  readonly model: string
}

const WRITE_CHARS = 1024 * 1024
const TEXT = 'A request of ordinary length, of which there are very many. '

/** Writes a batch for POST /responses to a file, which the test removes. */
function writeBatchFile(t: Pick<Test, 'teardown'>, { requests, textBytes, model }: BatchFileOptions): string {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-batch-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const path = join(folder, 'batch.json')
  const file = openSync(path, 'w')
  const text = TEXT.repeat(Math.ceil(textBytes / TEXT.length)).slice(0, textBytes)
  let waiting = `{"endpoint":"/v1/responses","model":${JSON.stringify(model)},"requests":[`
  for (let number = 0; number < requests; number++) {
    waiting += `${number === 0 ? '' : ','}{"custom_id":"request-${number}","body":{"input":"${text}"}}`
    if (waiting.length < WRITE_CHARS) continue
    writeSync(file, waiting)
    waiting = ''
  }
  writeSync(file, `${waiting}]}`)
  closeSync(file)
  return path
}

const STREAMS = 20
const PACE_MS = 5
const MIB = 1024 * 1024
const LIMIT_BYTES = 209_715_200
const REQUESTS = 100_000
/** More than before the upload, at most. */
const MEMORY_MAX_BYTES = 64 * MIB
/** Delay of a token, for all but one in a hundred. */
const DELAY_MAX_MS = 20

t.setTimeout(900_000)

interface Uploaded {
  readonly status: number
  readonly text: string
  readonly ms: number
}

async function upload(gateway: GatewayProcess, path: string, mode = ''): Promise<Uploaded> {
  const main = join(import.meta.dirname, 'upload-main.ts')
  const child = spawn(
    process.execPath,
    ['--disable-warning=ExperimentalWarning', main, String(gateway.port), gateway.apiKey, path, mode],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  )
  let text = ''
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk
  })
  await once(child, 'close')
  return JSON.parse(text) as Uploaded
}

async function start(t: Test) {
  const upstream = await startProviders(t, 'paced')
  const rows = upstream.settings({ stamp: [`flow-1000000-${PACE_MS}`] })
  const gateway = await startGatewayProcess(t, { ...rows, limits: NO_SHEDDING })
  return { gateway, model: `paced/openai-responses-flow-1000000-${PACE_MS}` }
}

t.test('200 MB of 100,000 requests are accepted while streams keep their pace', async t => {
  const { gateway, model } = await start(t)
  // The workers start with the first batch.
  const small = writeBatchFile(t, { requests: 10, textBytes: 100, model })
  t.equal((await upload(gateway, small)).status, 202)
  const large = writeBatchFile(t, { requests: REQUESTS, textBytes: 2_030, model })
  const bytes = statSync(large).size
  t.ok(bytes > LIMIT_BYTES * 0.99 && bytes <= LIMIT_BYTES, `${bytes} bytes`)

  let delaysMs: number[] = []
  const agent = newAgent()
  const onDelta = (delta: string, atMicros: number) => delaysMs.push((atMicros - Number(delta)) / 1000)
  const probes = Array.from({ length: STREAMS }, () =>
    openProbe({ model, input: 'x', stream: true }, { ...gateway, agent, onDelta }),
  )
  await pause(2_000)
  delaysMs = []
  await pause(3_000)
  const quiet = delaysMs
  gateway.forgetPeak()
  const before = gateway.rssBytes()
  const cpuBefore = gateway.cpuMs()
  delaysMs = []
  const { status, text, ms } = await upload(gateway, large)
  const busy = delaysMs
  const cpu = gateway.cpuMs() - cpuBefore
  const peak = gateway.peakRssBytes()
  t.equal(status, 202, text)
  t.match(JSON.parse(text), { status: 'validating', request_counts: { total: REQUESTS } })
  const told = (delays: readonly number[]) =>
    `p50 ${percentile(delays, 0.5).toFixed(1)}, p99 ${percentile(delays, 0.99).toFixed(1)}, max ${percentile(delays, 1).toFixed(0)} ms`
  t.comment(
    `accepted in ${(ms / 1000).toFixed(1)} s, ${(cpu / 1000).toFixed(1)} s of processor time of the gateway`,
  )
  t.comment(`${mib(before)} before, ${mib(peak)} at most`)
  t.comment(`delay of tokens: quiet ${told(quiet)}; meanwhile ${told(busy)}`)
  t.ok(peak <= before + MEMORY_MAX_BYTES, `${mib(peak - before)} more`)
  // Where other programs keep the processors busy, tokens are late without any batch.
  const limitMs = Math.max(DELAY_MAX_MS, 2 * percentile(quiet, 0.99))
  t.ok(percentile(busy, 0.99) < limitMs, `below ${limitMs.toFixed(0)} ms`)
  for (const probe of probes) probe.abort()
  const faults = (await Promise.all(probes.map(({ result }) => result))).filter(({ fault }) => fault !== null)
  t.same(faults, [], 'the streams were whole')
  agent.destroy()
  t.equal(await gateway.stop(), 0)
})

t.test('201 MB are refused, announced or not', async t => {
  const { gateway, model } = await start(t)
  const path = writeBatchFile(t, { requests: 100, textBytes: 2_110_000, model })
  t.ok(statSync(path).size > 201 * 1e6)
  const before = gateway.rssBytes()
  gateway.forgetPeak()
  for (const mode of ['', 'chunked']) {
    const { status, text } = await upload(gateway, path, mode)
    t.equal(status, 413, mode)
    t.match(text, `the limit is ${LIMIT_BYTES} bytes`)
  }
  t.ok(gateway.peakRssBytes() <= before + MEMORY_MAX_BYTES, mib(gateway.peakRssBytes() - before))
  t.equal(await gateway.stop(), 0)
})
