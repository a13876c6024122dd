/**
 * The SDKs and frameworks of docs/clients.md, installed from npm in exact versions: the lines of each section run as
 * they are pasted, against simulated models of each format.
 */
import { execFile } from 'node:child_process'
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { startGateway } from '../support/gateway.ts'
import { shellCommands } from '../support/shell-blocks.ts'
import { installedPackages, plainEnvironment } from './installed-packages.ts'

t.setTimeout(0)

const PAGE = join(import.meta.dirname, '../../docs/clients.md')
const LINES_MAX_MS = 120_000
const FORMATS = ['', 'chat-', 'messages-', 'gemini-'] as const

/** By the title of the section. */
const FRAMEWORKS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'OpenAI SDKs': { openai: '7.59.0' },
  'Anthropic SDKs': { '@anthropic-ai/sdk': '1.14.0' },
  '@google/genai': { '@google/genai': '3.3.0' },
  LangChain: { '@langchain/openai': '1.6.0', '@langchain/core': '1.4.0' },
  'OpenAI Agents SDK': { '@openai/agents': '0.20.0', zod: '4.6.7' },
  'AI SDK': { ai: '7.0.173', '@ai-sdk/openai-compatible': '3.0.92', zod: '4.6.7' },
}

const sections = new Map(
  readFileSync(PAGE, 'utf8')
    .split('\n## ')
    .map(section => [section.slice(0, section.indexOf('\n')), section] as const),
)
const gateway = await startGateway()
t.teardown(() => gateway.close())

/** An `npm` that installs the exact versions, if it is asked for these packages. */
function npmOf(folder: string, versions: Readonly<Record<string, string>>): string {
  const bin = join(folder, 'bin')
  const asked = `install --no-save ${Object.keys(versions).join(' ')}`
  const packages = join(installedPackages(versions), 'node_modules')
  mkdirSync(bin)
  const script = `#!/bin/sh\n[ "$*" = '${asked}' ] || { echo "npm $*" >&2; exit 1; }\nln -s '${packages}' node_modules\n`
  writeFileSync(join(bin, 'npm'), script)
  chmodSync(join(bin, 'npm'), 0o755)
  return bin
}

let passed = 0
for (const [title, versions] of Object.entries(FRAMEWORKS)) {
  const lines = shellCommands(sections.get(title) ?? '').map(({ text }) => text)
  const names = Object.entries(versions).map(([name, version]) => `${name} ${version}`)
  for (const format of FORMATS) {
    const model = `sim/${format}echo`
    t.test(`${names.join(', ')}: the lines of "${title}" answer at ${model}`, async t => {
      const folder = t.testdir({})
      const bin = npmOf(folder, versions)
      // The sections of SDKs say nothing of their installation.
      const installs = lines.some(line => line.startsWith('npm '))
      const script = [
        'set -e',
        ...(installs ? [] : [`npm install --no-save ${Object.keys(versions).join(' ')}`]),
        ...lines,
      ]
        .join('\n')
        .replaceAll('http://127.0.0.1:8080', `http://127.0.0.1:${gateway.port}`)
        .replaceAll('acme/fast-1', model)
      const plain = plainEnvironment({ KEY: gateway.apiKey })
      const env = { ...plain, PATH: `${bin}:${plain['PATH']}` }
      const before = gateway.lines.length
      const ran = await promisify(execFile)('bash', ['-c', script], {
        cwd: folder,
        env,
        timeout: LINES_MAX_MS,
      }).catch((error: Error & { stdout: string; stderr: string }) => error)
      t.match(ran.stdout, /Hello/, `${ran.stdout}\n${ran.stderr}`)
      t.notOk(ran instanceof Error, 'exit status')
      t.equal(ran.stderr, '', 'no warnings')
      const told = gateway.lines.slice(before).filter(line => typeof line['status'] === 'number')
      t.match(told, [{ status: 200 }], 'one request, which was answered')
      if (t.passing()) passed++
    })
  }
}
t.test('all of them', async t =>
  t.comment(`RESULT ${passed}/${Object.keys(FRAMEWORKS).length * FORMATS.length}`),
)
