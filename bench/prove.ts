/**
 * Runs `sluice prove` against other gateways for Node and against this one, each in front of the same scripted provider,
 * and writes the reports to `bench/results/prove/`. `npm run bench:prove`; with names, only those: `npm run bench:prove
 * -- sluice`.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { plain } from '../src/apps/commands/terminal/text.ts'
import { version } from '../src/apps/commands/version.ts'
import { waitingClock } from '../src/apps/commands/waiting-clock.ts'
import { FaultProvider, prove } from '../src/apps/prove/prove.ts'
import type { CheckResult, ProveReport } from '../src/apps/prove/report.ts'
import { startGateway } from './gateway.ts'
import { commitOf } from './machine.ts'
import { startLlms, startPortkey } from './peers.ts'
import { cacheFolder, endOnSignals, freePorts, stopAll } from './processes.ts'
import type { Bench, Subject } from './subjects.ts'
import { table } from './table.ts'

const ROOT = join(import.meta.dirname, '..')
const API_KEY = 'sk-gw-v1-5d0f6d3b1f6a4c2e9b7a8d0c3e5f71920a4b6c8d1e3f507294b6d8fa0c2e4165'
/** Made by the management API of this gateway; the others pass any key on to the provider. */
let secondKey = 'sk-gw-v1-0f3b7c2e9d5a4168b2c4d6e8f0a1c3e5d7b9f1a3c5e7092b4d6f8a0c2e4b6d80'
const MODEL = 'prove'
const PROVIDER_PORT = 9191

/** How one gateway is started and asked; the words are those that a person types. */
interface Row {
  readonly name: string
  readonly title: string
  readonly model: string
  readonly headers: readonly (readonly [string, string])[]
  start(bench: Bench): Promise<Subject>
}

const ROWS: readonly Row[] = [
  {
    name: 'portkey',
    title: 'Portkey (@portkey-ai/gateway)',
    model: 'gpt-test',
    headers: [
      ['x-portkey-provider', 'openai'],
      ['x-portkey-custom-host', `http://127.0.0.1:${PROVIDER_PORT}/v1`],
    ],
    start: bench => startPortkey(bench, cacheFolder('portkey')),
  },
  {
    name: 'llms',
    title: 'the server of claude-code-router (@musistudio/llms)',
    model: `chat,${MODEL}`,
    headers: [],
    start: bench => startLlms(bench, cacheFolder('llms')),
  },
  {
    name: 'sluice',
    title: 'Sluice',
    model: `bench-chat/${MODEL}`,
    headers: [],
    start: bench =>
      startGateway(bench, 'sluice', commitOf(ROOT).commit, { continues: true, prepare: makeSecondKey }),
  },
]

async function makeSecondKey(url: string, managementKey: string): Promise<void> {
  const reply = await fetch(`${url}/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${managementKey}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'second' }),
  })
  const { key } = (await reply.json()) as { key: string }
  secondKey = key
}

async function proved(row: Row, folder: string): Promise<void> {
  const [tls = 0] = await freePorts(1)
  const subject = await row.start({
    folder,
    upstream: { plain: PROVIDER_PORT, tls, http2: tls },
    certificate: join(folder, 'none.pem'),
    proxyCore: null,
    plans: [MODEL],
    apiKey: API_KEY,
    root: ROOT,
  })
  const provider = new FaultProvider(waitingClock)
  try {
    await provider.listen(PROVIDER_PORT)
    const { port } = subject.target({ wire: 'openai-chat', tls: false } as never)
    const report = await prove(
      {
        url: `http://127.0.0.1:${port}/v1`,
        key: API_KEY,
        headers: row.headers,
        model: row.model,
        limits: { requests: 1_000, concurrency: 8, seconds: 300 },
        provider,
        only: null,
        client: null,
        restartCommand: null,
        secondKey,
        directUrl: null,
        pid: subject.pids()[0] ?? null,
        version: version(),
        plain,
        clock: waitingClock,
      },
      { begins: () => undefined, onResult: () => undefined },
    )
    const file = join(ROOT, 'bench/results/prove', row.name)
    writeFileSync(`${file}.json`, `${JSON.stringify(report, null, 2)}\n`)
    writeFileSync(`${file}.md`, page(row, subject, report))
    process.stdout.write(`${row.name}: ${JSON.stringify(report.summary)}\n`)
  } finally {
    await provider.close()
    await subject.stop()
  }
}

function page({ title, model, headers }: Row, { version: of }: Subject, report: ProveReport): string {
  const { summary, ration, figures, checks } = report
  const words = headers.map(([name, value]) => ` \\\n  --header '${name}: ${value}'`).join('')
  const bad = checks.filter(({ status }) => status === 'fail' || status === 'warning')
  return `# \`sluice prove\` of ${title} ${of}

\`npm run bench:prove\` wrote this page on ${report.at.slice(0, 10)}. A person types, with the gateway's own address:

\`\`\`sh
sluice prove ${report.url} --key "$KEY" --second-key "$SECOND_KEY" --model ${model} --requests 1000 \\
  --provider-port ${PROVIDER_PORT} --pid "$PID"${words}
\`\`\`

Checks passed: ${summary.pass}; failed: ${summary.fail}; warnings: ${summary.warning}; skipped: ${summary.skipped}. Requests: ${ration.sent}. The report as JSON is beside this page.

${bad.length === 0 ? 'There are no findings.' : `## Findings\n\n${bad.map(finding).join('\n')}`}
## All checks

${table(
  ['check', 'interface', 'outcome', 'seen'],
  checks.map(({ id, dialect, status, seen }) => [`\`${id}\``, dialect ?? '', status, cell(seen)]),
)}

## Figures

${table(
  ['interface', 'first bytes of a stream, median', 'without the gateway', 'added', 'CPU per event'],
  figures.firstEvent.map(({ dialect, gateway, direct, addedMs }) => {
    const cpu = figures.cpu.find(each => each.dialect === dialect)
    return [
      dialect,
      `${gateway.medianMs.toFixed(1)} ms`,
      direct === null ? '' : `${direct.medianMs.toFixed(1)} ms`,
      addedMs === null ? '' : `${addedMs.toFixed(1)} ms`,
      cpu === undefined ? '' : `${cpu.microsPerEvent.toFixed(0)} µs`,
    ]
  }),
)}

The figures are of a machine that did other work too. [RESULTS.md](../../RESULTS.md) has those that compare gateways.
`
}

function finding({ id, dialect, status, expected, seen, matters, basis, repeat }: CheckResult): string {
  return `### \`${id}\`${dialect === null ? '' : `, ${dialect}`}${status === 'warning' ? ' (warning)' : ''}

- Expected: ${expected} (${basis})
- Seen: ${seen}
- Why it matters: ${matters}

\`\`\`sh
${repeat}
\`\`\`
`
}

function cell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;')
}

endOnSignals()
const folder = mkdtempSync(join(tmpdir(), 'prove-'))
try {
  const names = process.argv.slice(2)
  for (const row of ROWS) if (names.length === 0 || names.includes(row.name)) await proved(row, folder)
} finally {
  await stopAll()
  rmSync(folder, { recursive: true, force: true })
}
