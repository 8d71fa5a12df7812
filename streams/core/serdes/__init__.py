"""Serdes: conversion between objects and bytes."""
