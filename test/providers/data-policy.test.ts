/** The public statement of a provider counts where the row of an endpoint says nothing about data. */
import t from 'tap'
import { createCatalog } from '../../src/providers/catalog.ts'
import { parseResponsesRequest } from '../support/dialects.ts'
import { route } from '../support/ranking.ts'

const catalog = createCatalog({
  providers: [
    { slug: 'venice', apiKey: 'k' },
    { slug: 'deepseek', apiKey: 'k' },
    { slug: 'baseten', apiKey: 'k', baseUrl: 'http://127.0.0.1:1' },
    { slug: 'mine', format: 'openai-chat', baseUrl: 'http://127.0.0.1:1' },
  ],
  models: [
    {
      id: 'm/silent',
      endpoints: [
        { provider: 'venice' },
        { provider: 'deepseek' },
        { provider: 'baseten' },
        { provider: 'mine' },
      ],
    },
    {
      id: 'm/told',
      endpoints: [
        { provider: 'venice', zdr: false },
        { provider: 'venice', trains: false },
        { provider: 'venice', zdr: true, trains: true },
        { provider: 'deepseek', zdr: true },
        { provider: 'deepseek', trains: false },
      ],
    },
  ],
})
const policies = (id: string) => catalog.model(id)?.endpoints.map(({ zdr, trains }) => [zdr, trains === true])

t.test('a silent row takes what the provider says, unless somebody else may run the server', async t => {
  t.same(policies('m/silent'), [
    [true, false],
    [false, true],
    [false, false],
    [false, false],
  ])
  const asked = (provider: object) =>
    route(parseResponsesRequest({ model: 'm/silent', input: 'hi', provider }), catalog).candidates.map(
      ({ endpoint }) => endpoint.provider.slug,
    )
  t.same(asked({ zdr: true }), ['venice'])
  t.same(asked({ data_collection: 'deny' }), ['venice'])
  t.same(asked({ data_collection: 'allow' }).length, 4)
})

t.test('a row that says something about data says all of it', async t => {
  t.same(policies('m/told'), [
    [false, false],
    [false, false],
    [true, true],
    [true, false],
    [false, false],
  ])
})
