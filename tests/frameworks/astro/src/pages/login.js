import { login } from '../../limits.mjs';

export const prerender = false;
export const POST = ({ request, clientAddress }) => login(request, { address: clientAddress });
