/**
 * Runs the shell blocks of the README and of every page of docs/ against a real gateway with simulated models, each
 * page in a shell of its own, in the order of its lines. What a page shows as an error has to be that error.
 */
import { execFile, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { startGatewayProcess } from './support/gateway-process.ts'
import { outputFaults, type ShellCommand, shellCommands } from './support/shell-blocks.ts'

const ROOT = join(import.meta.dirname, '..')
const PAGES = ['README.md', ...readdirSync(join(ROOT, 'docs')).map(name => `docs/${name}`)].filter(name =>
  name.endsWith('.md'),
)

/** Commands that do not run here, by a part of them, and why. Each stands in some page. */
const LEFT_OUT: readonly (readonly [part: string, why: string])[] = [
  ['export URL=', 'sets what the test sets'],
  ['npm start', 'starts another gateway on the ports of this one; test/main.test.ts starts it'],
  ['npm run bench', 'takes minutes; test/bench/ runs the parts'],
  ['docker ', 'there is no Docker; scripts/production-install performs the steps of the Dockerfile'],
  ['sluice start', 'starts another gateway; test/apps/commands/start.test.ts does'],
  ['ls -ld data/compile-cache', 'belongs to the command before'],
  [
    'sluice check --config',
    'needs the files of the page; test/process/config/ and test/main.test.ts check such files',
  ],
  ['sluice models import', 'needs the list of another service; test/apps/commands/ imports one'],
  ['https://openrouter.ai', 'asks a service of the internet'],
  ['https://gateway.example.com', 'is a name that does not exist'],
  ['sluice alerts test', 'needs receivers; test/process/alerts/ has them'],
  ['sluice doctor', 'writes a file about this machine; test/apps/commands/doctor/ runs it'],
  ['kill -HUP', 'needs the process id; test/main.test.ts sends the signal'],
  ['sqlite3 ', 'needs the program sqlite3'],
  ["require('node:sqlite')", 'runs in the folder of the gateway; test/storage/ makes backups'],
  ['pg_', 'needs two databases'],
  ['sluice prove', 'takes most of a minute; test/apps/prove/ runs it'],
  ['sluice reconcile', 'needs an administration key of a provider'],
  ['sluice plan', 'needs a changed configuration; test/contract/plan.test.ts has one'],
  ['sluice replay', 'needs a capture; test/contract/replay.test.ts has one'],
  ['sluice rollouts', 'moves a rollout; test/contract/rollouts.test.ts does'],
  ['sluice providers', 'takes a provider away; test/contract/pauses-processes.test.ts does'],
  ['/v1/rollouts/', 'needs a route with a rollout; test/contract/rollouts.test.ts has one'],
  ['Bearer $CI_KEY', 'depends on the minute; test/contract/ counts requests by a clock of its own'],
  [
    '| cut -c1-330 &',
    'runs in the background until its key is disabled; test/contract/lost-rights.test.ts does it',
  ],
  [`'{"disabled":true}' >/dev/null`, 'belongs to the command before'],
  ['echo $?', 'shows the exit code of the command before, which is left out'],
  ['swagger-typescript-api', 'is installed apart; test/api/openapi-client.test.ts runs it'],
  ['npx sluice connect', 'test/apps/commands/connect.test.ts compares the lines'],
  ['connect.sh', 'belongs to the command before'],
  ['claude', 'is a program of its own; npm run test:heavy -- agents runs it'],
  ['ANTHROPIC_', 'sets variables for such a program'],
  ['gemini', 'is a program of its own; npm run test:heavy -- agents runs it'],
  ['GEMINI_', 'sets variables for such a program'],
  ['qwen', 'is a program of its own; npm run test:heavy -- agents runs it'],
  ['cline ', 'is a program of its own; npm run test:heavy -- agents runs it'],
  ['OPENAI_', 'sets variables for such a program'],
  ['import OpenAI', 'needs the SDK in the folder; test/contract/openai-sdk.test.ts has it'],
  ['import Anthropic', 'needs the SDK in the folder; test/contract/messages-sdk.test.ts has it'],
  ['@google/genai', 'needs the SDK in the folder; test/contract/gemini-sdk.test.ts has it'],
  ['maths.example.com', 'needs an MCP server; test/contract/mcp.test.ts has one'],
  ['"rules":', 'needs an evaluator; test/contract/alignment.test.ts has one'],
  ['ann@example.org', 'needs a guardrail of the key; test/contract/guardrails-input.test.ts has it'],
  ['Ignore all previous', 'needs a guardrail of the key; test/contract/guardrails-input.test.ts has it'],
  ['gateway/bodybuilder', 'is shortened in the page; test/contract/routers.test.ts asks it'],
  ['sluice captures show', 'needs a capture with a request; test/contract/captures.test.ts has one'],
  ['sluice why', 'needs a request that failed over; test/contract/why.test.ts has one'],
  ['sluice top', 'shows what runs; test/apps/commands/top/ has a gateway with requests'],
  ['npm install', 'asks the registry for packages'],
  ['@openai/agents', 'needs the package in the folder'],
  ['gateway_tls', 'needs a certificate; test/contract/tls.test.ts has one'],
]

/** So that pages may name models of their own: all of them are simulated. */
const SIMULATED: Readonly<Record<string, string>> = {
  'acme/fast-1': 'call',
  'openai/gpt-5-mini': 'echo',
  'anthropic/claude-opus-5.5': 'echo',
}

const needed = ['bash', 'curl', 'jq'].find(name => spawnSync('sh', ['-c', `command -v ${name}`]).status !== 0)
/** Where everything has to run, a program that is missing is a failure. */
const skip = needed === undefined || process.env['CI'] === 'true' ? false : `${needed} is not installed`

const managementKey = `sk-gw-mgmt-${randomBytes(32).toString('hex')}`
const gateway = await startGatewayProcess(
  t,
  {
    simulator: { enabled: true },
    models: Object.entries(SIMULATED).map(([id, upstreamModel]) => ({
      id,
      endpoints: [{ provider: 'sim', upstreamModel, pricing: {} }],
    })),
  },
  { GATEWAY_MANAGEMENT_KEY: managementKey },
)

/** Programs of the shells: `npx sluice` and `sluice` of this clone, and its Node. */
const programs = t.testdir({})
for (const name of ['npx', 'sluice']) {
  const path = join(programs, name)
  writeFileSync(
    path,
    `#!/bin/sh\n[ "$1" = sluice ] && shift\nexec '${process.execPath}' '${ROOT}/bin/sluice.js' "$@"\n`,
  )
  chmodSync(path, 0o755)
}

const environment = {
  PATH: `${programs}:${process.env['PATH'] ?? ''}`,
  HOME: programs,
  URL: gateway.url,
  KEY: gateway.apiKey,
  MANAGEMENT_KEY: managementKey,
  DATABASE_URL: `sqlite:${join(gateway.configFile, '../data/gateway.db')}`,
}
/** The commands of one page; a hanging one must not hold up the tests for long. */
const PAGE_MS = 120_000

/** The output of each command, and its exit code. */
function run(commands: readonly ShellCommand[], folder: string): Promise<readonly [string, number][]> {
  const mark = `mark-${randomBytes(8).toString('hex')}`
  const lines = commands.map(
    ({ text }) =>
      `${text.replaceAll('http://127.0.0.1:9090', gateway.adminUrl).replaceAll('http://127.0.0.1:8080', gateway.url)}\nprintf '%s %s\\n' '${mark}' "$?"`,
  )
  writeFileSync(join(folder, 'page.sh'), `${lines.join('\n')}\n`)
  return new Promise(resolve => {
    execFile(
      'bash',
      ['page.sh'],
      { cwd: folder, env: environment, timeout: PAGE_MS, maxBuffer: 64 * 1024 * 1024 },
      (_, stdout) => {
        const parts = stdout.split(new RegExp(`${mark} (\\d+)\n`))
        resolve(commands.map((_, at) => [parts[2 * at] ?? '', Number(parts[2 * at + 1] ?? -1)]))
      },
    )
  })
}

const used = new Set<string>()
const whyLeftOut = ({ text }: ShellCommand): string | undefined => {
  const row = LEFT_OUT.find(([part]) => text.includes(part))
  if (row !== undefined) used.add(row[0])
  return row?.[1]
}

let ran = 0
for (const page of PAGES) {
  const commands = shellCommands(readFileSync(join(ROOT, page), 'utf8'))
  const kept = commands.filter(command => whyLeftOut(command) === undefined)
  if (kept.length === 0) continue
  await t.test(`the shell blocks of ${page} work, one after the other`, { skip }, async t => {
    const folder = join(programs, page.replaceAll('/', '-'))
    mkdirSync(folder)
    const outputs = await run(kept, folder)
    for (const [at, { line, text, shown }] of kept.entries()) {
      const [output, code] = outputs[at] ?? ['', -1]
      const label = `${page}:${line}: ${text.slice(0, 100)}`
      // What curl says of a stream that it left on purpose, and what a page shows as a failure.
      const expected = text.includes('--max-time') ? 28 : /^sluice: /m.test(shown) ? 1 : 0
      if (code !== expected) t.fail(`${label}: exit code ${code}`, { output })
      else t.same(outputFaults(shown, output), [], label)
      ran++
    }
  })
}

t.test('most commands ran, and every row of the list of others is needed', { skip }, async t => {
  t.ok(ran >= 100, `${ran} ran`)
  t.same(
    LEFT_OUT.map(([part]) => part).filter(part => !used.has(part)),
    [],
  )
})

t.test('pages take keys and ids from variables or from the answer before', async t => {
  for (const page of PAGES) {
    for (const { line, text } of shellCommands(readFileSync(join(ROOT, page), 'utf8'))) {
      if (/sk-gw-(?:v1|mgmt)-[0-9a-f]/.test(text)) t.fail(`${page}:${line} has a key`)
      if (
        /\b(?:gen|batch|gw_file|resp)[-_][A-Za-z0-9]{10,}|\b[0-9a-f]{8}-[0-9a-f]{4}-|\b[0-9a-f]{64}\b/.test(
          text,
        )
      )
        t.fail(`${page}:${line} has an id of somebody else`)
      if (/\$(?:API_KEY|SLUICE_KEY|GATEWAY_URL)\b/.test(text)) t.fail(`${page}:${line}: the key is $KEY`)
    }
  }
})
