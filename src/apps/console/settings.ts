/** Settings for the console and for signing in to it. Pure. */
import { Type } from '@sinclair/typebox'
import { Address, group, nullable, oneOf, setting } from '../../base/settings/setting.ts'

const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/

/** True for an address with TLS or on this machine, without a user, a query or a fragment. */
function isSafe(text: string): boolean {
  if (!URL.canParse(text)) return false
  const { protocol, hostname, username, password, search, hash } = new URL(text)
  if (`${username}${password}${search}${hash}` !== '') return false
  return protocol === 'https:' || (protocol === 'http:' && LOOPBACK.test(hostname))
}

const SAFE_ADDRESS_TEXT = 'https://…, or http:// at localhost, 127.0.0.1 or [::1],'

/** The browser is sent to paths of this address, which begin at its root. */
const publicAddress = {
  accepts: (url: string | null) => url === null || (isSafe(url) && new URL(url).pathname === '/'),
  expected: `${SAFE_ADDRESS_TEXT} without a path`,
}

const issuerAddress = { accepts: isSafe, expected: `${SAFE_ADDRESS_TEXT} without a query` }

/** Roles of management keys. */
const ROLES = ['viewer', 'operator', 'admin'] as const

export const consoleSettings = group({
  enabled: setting(Type.Boolean(), 'false: the admin port has no [console](console.md) under `/console`', {
    default: true,
  }),
  publicUrl: setting(
    nullable(Address),
    'the address at which browsers reach the console, such as `https://sluice.example.com`: https, or http on this machine. [Sign-in](console.md#sign-in) returns to `/console/callback` at this address, regardless of the `Host` in a request. Its name does not need an entry in `admin.hosts`',
    publicAddress,
  ),
  oidc: nullable(
    group({
      issuer: setting(
        Address,
        'the address of the OpenID provider, exactly as it appears in its tokens; everything else is read from `/.well-known/openid-configuration` below it',
        issuerAddress,
      ),
      clientId: setting(Address, 'the client id of the gateway at the OpenID provider'),
      clientSecretFile: setting(
        Address,
        'a file with the client secret of the gateway, read at each sign-in',
      ),
      roleClaim: setting(
        Address,
        'the claim of the ID token that decides the role: a string or a list of strings. Dots lead into an object, as in `realm_access.roles`; `email` counts only if it is verified',
        { default: 'roles' },
      ),
      roles: setting(
        Type.Record(Type.String({ minLength: 1 }), oneOf(ROLES), { minProperties: 1 }),
        'the [role](management.md#roles) for each value of that claim: `viewer`, `operator` or `admin`. If several values match, the highest role applies; if none does, the sign-in is refused',
      ),
    }),
  ),
})
