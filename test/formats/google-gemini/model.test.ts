import fc from 'fast-check'
import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { demandsSignatures, modelPath, thinkingOf } from '../../../src/formats/google-gemini/model.ts'
import { search } from '../../support/property.ts'

t.test('the path of a model', async t => {
  const cases: readonly [name: string, path: string][] = [
    ['gemini-2.5-flash', '/models/gemini-2.5-flash'],
    ['models/gemini-2.5-flash', '/models/gemini-2.5-flash'],
    ['tunedModels/mine-7', '/tunedModels/mine-7'],
    ['publishers/google/models/gemini@001', '/publishers/google/models/gemini@001'],
    ['projects/p/locations/eu-w1/endpoints/7', '/projects/p/locations/eu-w1/endpoints/7'],
    ['google/gemini', '/models/google%2Fgemini'],
    ['a b', '/models/a%20b'],
    ['x?key=1', '/models/x%3Fkey%3D1'],
    ['x#frag', '/models/x%23frag'],
    ['x%2e%2e', '/models/x%252e%252e'],
    ['x:countTokens', '/models/x%3AcountTokens'],
    ['models/x?y', '/models/x%3Fy'],
    ['modèle', '/models/mod%C3%A8le'],
    ['..x', '/models/..x'],
  ]
  for (const [name, path] of cases) t.equal(modelPath(name), path, name)
})

t.test('names that could leave their place are refused', async t => {
  for (const name of [
    '',
    '.',
    '..',
    '../x',
    'models/../x',
    'x/..',
    '/x',
    'x/',
    'models//x',
    '%2e%2e',
    'models/%2E./x',
    'a\\b',
    'a\r\nb',
    'a\u0000',
    '\ud800',
  ]) {
    t.throws(() => modelPath(name), { name: 'GatewayError', code: 'unprocessable' }, JSON.stringify(name))
  }
})

t.test('no name changes the path, the query or the fragment of an address', async t => {
  const hostile = fc.string({
    unit: fc.constantFrom('.', '/', '%', '2', 'e', 'f', '?', '#', '\\', ':', '@', ';', ' ', 'a', 'ü'),
  })
  const property = fc.check(
    fc.property(fc.oneof(hostile, fc.string({ unit: 'binary' })), name => {
      let path: string
      try {
        path = modelPath(name)
      } catch (thrown) {
        return thrown instanceof GatewayError && thrown.code === 'unprocessable'
      }
      const url = new URL(`https://host.example/v1beta${path}:generateContent`)
      return (
        url.host === 'host.example' &&
        url.search === '' &&
        url.hash === '' &&
        url.pathname === `/v1beta${path}:generateContent`
      )
    }),
    search(2000),
  )
  t.notOk(property.failed, JSON.stringify(property.counterexample))
})

t.test('generations of models by their name', async t => {
  const cases: readonly [name: string, thinking: object, signing: boolean][] = [
    ['gemini-3-pro-preview', { by: 'level', levels: ['LOW', 'HIGH'] }, true],
    ['gemini-3.1-pro-preview', { by: 'level', levels: ['LOW', 'MEDIUM', 'HIGH'] }, true],
    [
      'publishers/google/models/gemini-3-flash-preview',
      { by: 'level', levels: ['MINIMAL', 'LOW', 'MEDIUM', 'HIGH'] },
      true,
    ],
    ['gemini-3.5-flash', { by: 'level' }, true],
    ['gemini-10-flash', { by: 'level' }, true],
    ['gemini-2.5-pro', { by: 'budget', minTokens: 128, maxTokens: 32_768 }, false],
    ['gemini-2.5-flash-lite-001', { by: 'budget', minTokens: 512 }, false],
    ['gemini-2.5-flash', { by: 'budget', minTokens: 0, maxTokens: 24_576 }, false],
    ['gemini-1.5-flash', { by: 'nothing' }, false],
    ['gemini-flash-latest', { by: 'budget' }, false],
  ]
  for (const [name, thinking, signing] of cases) {
    t.match(thinkingOf(name), thinking, name)
    t.equal(demandsSignatures(name), signing, name)
  }
})
