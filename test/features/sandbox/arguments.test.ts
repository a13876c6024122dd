import t from 'tap'
import { bubblewrapArguments } from '../../../src/features/sandbox/bubblewrap.ts'
import { dockerArguments, IMAGE_NAME } from '../../../src/features/sandbox/docker.ts'
import { childArguments } from '../../../src/features/sandbox/embedded/embedded.ts'
import {
  type ChildRequest,
  readReply,
  replyMaxBytes,
  writeFrame,
} from '../../../src/features/sandbox/embedded/frames.ts'
import { filePath } from '../../../src/features/sandbox/paths.ts'

const LIMITS = { cpuSeconds: 30, memoryBytes: 512 * 1024 * 1024, fileBytes: 1_000, files: 10 }
const CODE = { language: 'shell', text: '--; $(reboot) `x`\n"' } as const

t.test('a code is one argument, whatever is in it', async t => {
  const bwrap = bubblewrapArguments({ prlimit: '/usr/bin/prlimit', limits: LIMITS, source: '/data/c' }, CODE)
  t.same(bwrap.slice(-3), ['bash', '-c', CODE.text])
  const docker = dockerArguments({ limits: LIMITS, source: '/data/c', user: 1001, timeoutMs: 1_500 }, CODE)
  t.same(docker.slice(-3), ['bash', '-c', CODE.text])
  t.same(docker.slice(docker.indexOf(IMAGE_NAME), -3), [IMAGE_NAME, 'timeout', '--signal=KILL', '2'])
  const python = dockerArguments(
    { limits: LIMITS, source: '/d', user: 1, timeoutMs: 1 },
    { language: 'python', text: '1' },
  )
  t.same(python.slice(-3), ['python3', '-c', '1'])
})

t.test('docker gets no network, no rights, a read-only root and limits', async t => {
  const args = dockerArguments({ limits: LIMITS, source: '/data/c', user: 1001, timeoutMs: 1_000 }, CODE)
  const line = args.slice(0, args.indexOf(IMAGE_NAME)).join(' ')
  for (const part of [
    'run --rm --init --pull never',
    '--network none',
    '--ipc none',
    '--read-only',
    '--cap-drop ALL',
    '--security-opt no-new-privileges',
    '--user 1001:1001',
    '--memory 536870912 --memory-swap 536870912',
    '--pids-limit 64',
    '--ulimit cpu=30',
    '--ulimit fsize=1000',
    '--mount type=bind,source=/data/c,target=/mnt/data',
  ])
    t.ok(line.includes(part), part)
  t.notOk(/--privileged|--volume|docker\.sock|--env-file/.test(line))
})

t.test('bwrap gets namespaces of all kinds, and one folder to write to', async t => {
  const args = bubblewrapArguments({ prlimit: 'p', limits: LIMITS, source: '/data/c' }, CODE)
  for (const flag of [
    '--unshare-user',
    '--unshare-all',
    '--disable-userns',
    '--die-with-parent',
    '--new-session',
    '--clearenv',
  ])
    t.ok(args.includes(flag), flag)
  t.notOk(args.includes('--share-net'))
  const bound = args.flatMap((arg, at) => (arg === '--bind' ? [args.slice(at + 1, at + 3)] : []))
  t.same(bound, [['/data/c', '/mnt/data']])
})

t.test('the child process may read its own code alone', async t => {
  const args = childArguments(512 * 1024 * 1024)
  t.ok(args.includes('--permission'))
  t.ok(args.includes('--max-old-space-size=204'))
  const reads = args.filter(arg => arg.startsWith('--allow-fs-read=')).map(arg => arg.slice(16))
  t.ok(
    reads.every(path => /\/(node_modules\/|src\/features\/sandbox\/|package\.json)$/.test(path)),
    reads.join(' '),
  )
  t.same(
    args.filter(arg => /allow-(fs-write|child|addons|wasi)/.test(arg)),
    [],
  )
})

const REQUEST: ChildRequest = { codes: [CODE], timeoutMs: 1, outputBytes: 100, fileBytes: 1_000, files: 3 }
const OUTPUT = { stdout: 'a', stderr: '', exitCode: 0, timedOut: false }
const entry = (path: string, fields: object = {}) => ({
  path,
  kind: 'file' as const,
  mode: 0o644,
  changedMs: 1,
  target: '',
  content: Buffer.from('abc'),
  ...fields,
})
const reply = (head: object, entries: Parameters<typeof writeFrame>[1]) =>
  readReply(Buffer.concat(writeFrame(head, entries)), REQUEST)

t.test('a reply of the child is read, if it keeps to the form', async t => {
  const good = reply({ outputs: [OUTPUT] }, [entry('a/b'), entry('__proto__')])
  t.match(good, { outputs: [OUTPUT], entries: [{ path: 'a/b' }, { path: '__proto__' }] })
  t.equal(Buffer.from(good?.entries?.[0]?.content ?? []).toString(), 'abc')
  t.equal(reply({ outputs: [OUTPUT] }, null)?.entries, null)
  t.equal(Reflect.get({}, 'path'), undefined)
})

t.test('a reply that breaks the form or a limit is refused', async t => {
  const outputs = [OUTPUT]
  for (const path of ['../x', '/etc/passwd', 'a/../../b', '', '.', 'a\0b', 'a//b', '/mnt/data/a'])
    t.equal(reply({ outputs }, [entry(path)]), null, JSON.stringify(path))
  for (const fields of [
    { kind: 'device' },
    { mode: -1 },
    { mode: 1.5 },
    { changedMs: 'x' },
    { target: 'x'.repeat(5_000) },
    { kind: 'link' },
  ])
    t.equal(reply({ outputs }, [entry('a', fields)]), null, JSON.stringify(fields).slice(0, 40))
  t.equal(reply({ outputs: [OUTPUT, OUTPUT] }, []), null, 'more outputs than codes')
  for (const bad of [
    null,
    1,
    'x',
    [1],
    [null],
    [{ ...OUTPUT, stdout: 1 }],
    [{ ...OUTPUT, exitCode: -1 }],
    [{ ...OUTPUT, exitCode: '0' }],
  ])
    t.equal(reply({ outputs: bad }, []), null, JSON.stringify(bad))
  t.equal(reply({ outputs }, [entry('a', { content: Buffer.alloc(1_001) })])?.entries, null, 'too large')
  t.equal(
    reply(
      { outputs },
      ['a', 'b', 'c', 'd'].map(path => entry(path)),
    )?.entries,
    null,
    'too many',
  )
  t.equal(reply({ outputs }, [entry('a'), entry('a')])?.entries, null, 'twice')
  t.equal(reply({ outputs }, [entry('a', { mode: 0o104755 })])?.entries?.[0]?.mode, 0o755, 'no special bits')
  const whole = Buffer.concat(writeFrame({ outputs }, [entry('a')]))
  for (let length = 0; length < whole.length; length++)
    t.equal(readReply(whole.subarray(0, length), REQUEST), null)
  t.equal(readReply(Buffer.concat([whole, Buffer.from('x')]), REQUEST), null)
  t.ok(whole.length <= replyMaxBytes(REQUEST))
})

t.test('paths of files', async t => {
  const good = {
    a: 'a',
    './a': 'a',
    'a//b/': 'a/b',
    '/mnt/data/a b/ü': 'a b/ü',
    '..a': '..a',
    __proto__: '__proto__',
  }
  for (const [path, expected] of Object.entries(good)) t.equal(filePath(path), expected)
  const bad = [
    '',
    '.',
    '..',
    '/',
    '/mnt/data',
    '/mnt/data/../x',
    '/etc',
    'a/../b',
    'a\0',
    '\ud800',
    'x'.repeat(256),
    'a/'.repeat(600),
  ]
  for (const path of bad) t.equal(filePath(path), null, path.slice(0, 20))
})
