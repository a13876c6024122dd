import t from 'tap'
import { startWarnings } from '../../src/threads/start-warnings.ts'

const fieldsOf = (providers: Parameters<typeof startWarnings>[0]['providers']): readonly string[] =>
  startWarnings({ providers }).map(({ field }) => field)

t.test('a provider on another machine without TLS is told by its field', t => {
  const own = (baseUrl: string) => ({ slug: 'acme', baseUrl })
  t.same(
    fieldsOf([own('https://api.example/v1'), own('http://api.example/v1'), own('http://10.0.0.7:8000/v1')]),
    ['providers[1].baseUrl', 'providers[2].baseUrl'],
  )
  const here = [
    'http://127.0.0.1:9/v1',
    'http://localhost/v1',
    'http://x.localhost:1/v1',
    'http://[::1]:2/v1',
  ]
  t.same(fieldsOf([...here.map(own), { slug: 'openai' }]), [])
  t.same(fieldsOf([own('http://127.0.0.1.example/v1')]), ['providers[0].baseUrl'])
  t.end()
})

t.test('a proxy that gets a password without TLS is told too', t => {
  const by = (proxy: string) => ({ slug: 'acme', proxy })
  t.same(
    fieldsOf([
      by('http://u:p@proxy:3128'),
      by('u:p@proxy:3128'),
      by('https://u:p@proxy'),
      by('http://proxy'),
      by('none'),
    ]),
    ['providers[0].proxy', 'providers[1].proxy'],
  )
  t.same(fieldsOf([by('http://u:p@127.0.0.1:3128')]), [])
  t.end()
})
