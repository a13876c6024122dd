/** How the words of a command line are read, and what is said of wrong ones. */
import t from 'tap'
import {
  CONFIG_OPTION,
  type Command,
  parseCommandLine,
  UsageError,
} from '../../../src/apps/commands/command.ts'

const command = (name: string, options: Command['options'] = {}): Command => ({
  name,
  does: '',
  options: { ...options, config: CONFIG_OPTION },
  run: () => Promise.resolve(0),
})
const COMMANDS = [
  command('start'),
  command('keys create', { name: { value: 'NAME', required: true, does: '' }, management: { does: '' } }),
  command('keys list'),
]

const read = (line: string) => parseCommandLine(line.split(' '), COMMANDS)

t.test('a command gets its options, before and after each other', async t => {
  t.match(read('start'), { action: 'run', command: { name: 'start' }, options: {} })
  for (const line of ['start --config a.yaml', 'start --config=a.yaml'])
    t.match(read(line), { action: 'run', options: { config: 'a.yaml' } })
  t.match(read('keys create --management --name x'), {
    command: { name: 'keys create' },
    options: { management: true, name: 'x' },
  })
})

t.test('help and version are asked for anywhere', async t => {
  for (const line of ['--help', '-h', 'start --help', 'keys create -h', 'start --config a --help'])
    t.equal(read(line).action, 'help', line)
  t.match(read('keys list --help'), { command: { name: 'keys list' } })
  t.match(read('keys --help'), {
    command: null,
    candidates: [{ name: 'keys create' }, { name: 'keys list' }],
  })
  t.match(read('nonsense --help'), { command: null, candidates: COMMANDS })
  for (const line of ['--version', 'start --version', 'nonsense --version'])
    t.equal(read(line).action, 'version', line)
})

t.test('what is wrong is named, with what was probably meant and without values', async t => {
  const cases = [
    ['strat', /^strat: there is no such command; did you mean start\?$/],
    ['key create --name x', /^key create: there is no such command; did you mean keys create\?$/],
    ['zzzzzz', /^zzzzzz: there is no such command; sluice --help lists them$/],
    ['--config a.yaml', /^a command is missing|^a\.yaml: there is no such command/],
    ['keys', /^keys: is not a complete command; the commands are: keys create, keys list$/],
    ['start --confg x', /^--confg: unknown option of sluice start; did you mean --config\?$/],
    ['start --confg=secret', /^--confg: unknown option of sluice start; did you mean --config\?$/],
    ['start gateway.yaml', /^gateway\.yaml: unknown argument .*use --config gateway\.yaml$/],
    ['start --config', /^--config: expects FILE$/],
    ['start --config=', /^--config: expects FILE$/],
    ['start --config --help-me', /^--config: expects FILE/],
    ['keys create', /^--name: is required; usage: --name NAME$/],
    ['keys create --name x --management=yes', /^--management: does not take a value$/],
    ['start sk-gw-v1-abc', /^\(a key\): unknown argument/],
  ] as const
  for (const [line, says] of cases) {
    const error = t.throws(() => read(line), UsageError, line) as Error
    t.match(error.message, says, line)
    t.notMatch(error.message, /secret|sk-gw/, line)
  }
})

t.test('all faults of a line are told at once', async t => {
  const error = t.throws(() => read('keys create --nmae x --managment'), UsageError) as Error
  t.same(
    error.message.split('\n').map(line => line.split(':')[0]),
    ['--nmae', '--managment', '--name'],
  )
})
